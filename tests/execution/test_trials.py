"""``h2h run --try`` and ``--only``: a few steps in this process, and some variants of a study."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Command = Callable[..., Any]

PLUGIN = '''"""breaks: raises in its own frame at the third call."""
import os

from headtohead.plugin import Positional, hookimpl


class Breaks(Positional):
    calls = []

    def bias(self, query_positions, key_positions, role, layer):
        self.calls.append(os.getpid())
        if len(self.calls) == 3:
            raise ZeroDivisionError(f"in process {os.getpid()}")


@hookimpl
def register_positionals():
    return {"breaks": Breaks}
'''

STUDY: dict[str, Any] = {
    "question": "Does it train?",
    "plugins": ["breaks.py"],
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8, "dropout": 0.0},
        "train": {"epochs": 1000, "batch_tokens": 128},
        "evaluate": {"max_length": 6, "unpadded": False},
    },
    "baseline": {"positional": "sinusoidal"},
    "design": [{"one_at_a_time": {"positional": ["rotary", "breaks"]}}],
    "seeds": 2,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "breaks.py").write_text(PLUGIN)
    write(tmp_path)
    return tmp_path


def write(folder: Path, **changes: Any) -> None:
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY | changes, sort_keys=False))


@pytest.fixture
def h2h(folder: Path, cache: Path, h2h_here: Command, without_figures: None) -> Command:
    return lambda *arguments: h2h_here(folder, *arguments, H2H_CACHE=str(cache))


def test_a_trial_prints_loss_and_speed_and_changes_only_its_own_folder(folder: Path, h2h: Command) -> None:
    tried = h2h("run", "study.yaml", "--try", "--only", "rotary", "--only", "sinusoidal", "--steps", "4")
    assert tried.returncode == 0, tried.stderr
    lines = tried.stdout.splitlines()
    assert lines[0] == "trying 2 variants for 4 steps in runs/.try/study"
    assert [line for line in lines if not line.startswith("  ")][1:] == ["sinusoidal:", "rotary:"]
    steps = [re.fullmatch(r"  step (\d)/4  loss ([\d.]+)  ([\d,]+) tokens/s", line) for line in lines]
    numbers = [[float(part.replace(",", "")) for part in found.groups()] for found in steps if found]
    assert [step for step, _, _ in numbers] == [1, 2, 3, 4] * 2
    assert all(3 < loss < 6 and speed > 0 for _, loss, speed in numbers)
    means = [float(re.search(r"train/loss ([\d.]+)", line)[1]) for line in lines if "evaluation:" in line]
    assert means == pytest.approx(
        [sum(loss for _, loss, _ in part) / 4 for part in (numbers[:4], numbers[4:])], rel=1e-3
    )
    assert sum(line.startswith("  10 test sentences: test/") for line in lines) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["breaks.py", "runs", "study.yaml"]
    assert [path.name for path in (folder / "runs").iterdir()] == [".try"]
    assert "no experiments" in h2h("list").stdout + h2h("list").stderr


def test_a_trial_ignores_tuning_and_sequential_seeds(folder: Path, h2h: Command) -> None:
    base = STUDY["base"] | {"evaluate": {"max_length": 6, "unpadded": False, "test_limit": 3}}
    write(folder, base=base, seeds={"until": "decided", "at_most": 9}, tune={"train.lr": [1.0e-3, 2.0e-3]})
    tried = h2h("run", "study.yaml", "--try", "--only", "sinusoidal", "--steps", "2")
    assert tried.returncode == 0, tried.stderr
    assert "trying 1 variant for 2 steps" in tried.stdout
    assert tried.stdout.count("  3 test sentences: test/") == 1


def test_a_trial_raises_the_error_of_a_plugin_in_this_process(h2h: Command) -> None:
    import os

    with pytest.raises(ZeroDivisionError, match=f"in process {os.getpid()}") as caught:
        h2h("run", "study.yaml", "--try", "--only", "breaks")
    assert str(caught.traceback[-1].path).endswith("breaks.py")


def test_only_trains_some_variants_and_the_report_waits_for_the_others(folder: Path, h2h: Command) -> None:
    base = STUDY["base"] | {"train": {"steps": 4, "batch_tokens": 128}, "evaluate": {"decode": "none"}}
    metrics = {"primary": "test/token_accuracy", "report": []}
    write(folder, base=base, metrics=metrics, design=[{"one_at_a_time": {"positional": ["rotary", "none"]}}])
    first = h2h("run", "study.yaml", "--no-tracking", "--only", "rotary")
    assert first.returncode == 0, first.stderr
    assert re.search(r"rotary: \d of \d runs done, loss \d", first.stderr)
    assert "2 variants are left out by --only; the same command without --only trains them" in first.stdout
    assert sorted(path.name.partition("-")[0] for path in (folder / "runs" / "study").glob("*-s*")) == ["rotary"] * 2
    assert not (folder / "reports").exists()
    second = h2h("run", "study.yaml", "--no-tracking", "--no-report")
    assert second.returncode == 0, second.stderr
    assert "training 4 runs" in second.stderr
    assert "no report was written; h2h report study.yaml writes it" in second.stdout
    assert not (folder / "reports").exists()
    partial = h2h("run", "study.yaml", "--no-tracking", "--only", "none")
    assert (folder / "reports" / "study" / "report.md").exists()
    assert partial.returncode == 0, partial.stderr


REFUSED = {
    ("--only", "rotery"): "--only rotery: unknown variant 'rotery'; did you mean 'rotary'?",
    ("--try", "--only", "nothing-like-it"): "--only nothing-like-it: unknown variant 'nothing-like-it'; known: breaks, "
    "rotary, sinusoidal",
    ("--steps", "3"): "--steps requires --try; set train.steps with --set train.steps=N",
    ("--try", "--retry"): "--try trains a few steps in this process; leave out --retry",
    ("--try", "--workers", "2"): "--try trains a few steps in this process; leave out --workers",
    ("--only", "rotary", "--fresh"): "--fresh trains every run anew; leave out --only",
    ("--stale", "--fresh"): "--fresh trains every run anew; leave out --stale",
    ("--no-report", "--allow-partial"): "--no-report writes no report; leave out --allow-partial",
}


@pytest.mark.parametrize("options", REFUSED)
def test_contradictory_options_are_one_line(h2h: Command, options: tuple[str, ...]) -> None:
    done = h2h("run", "study.yaml", *options)
    assert (done.returncode, done.stderr) == (2, f"h2h: {REFUSED[options]}\n")
