"""``h2h run --try`` and ``--only``: a few steps in this process, and some variants of a study."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from made.study import Study

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

CHANGES: dict[str, Any] = {
    "base": {"model": {"dropout": 0.0}, "evaluate": {"max_length": 6, "unpadded": False, "test_limit": 10}},
    "design": [{"one_at_a_time": {"positional": ["rotary", "breaks"]}}],
}


@pytest.fixture
def trial(study: Study) -> Study:
    study.write(plugin=PLUGIN, **CHANGES)
    return study


def test_a_trial_prints_loss_and_speed_and_changes_only_its_own_folder(trial: Study) -> None:
    """It ignores tuning and sequential seeds."""
    seeds = {"until": "decided", "at_most": 9}
    trial.write(plugin=PLUGIN, **CHANGES, seeds=seeds, tune={"train.lr": [1.0e-3, 2.0e-3]})
    tried = trial.h2h("run", "tiny.yaml", "--try", "--only", "rotary", "--only", "sinusoidal", "--steps", "4")
    lines = tried.stdout.splitlines()
    assert [line for line in lines if not line.startswith("  ")][1:] == ["sinusoidal:", "rotary:"]
    steps = [re.fullmatch(r"  step (\d)/4  loss ([\d.]+)  ([\d,]+) tokens/s", line) for line in lines]
    numbers = [[float(part.replace(",", "")) for part in found.groups()] for found in steps if found]
    assert [step for step, _, _ in numbers] == [1, 2, 3, 4] * 2
    assert all(3 < loss < 6 and speed > 0 for _, loss, speed in numbers)
    means = [float(re.findall(r"train/loss ([\d.]+)", line)[0]) for line in lines if "evaluation:" in line]
    expected = [sum(loss for _, loss, _ in part) / 4 for part in (numbers[:4], numbers[4:])]
    assert means == pytest.approx(expected, rel=1e-3)
    assert sum(line.startswith("  10 test sentences: test/") for line in lines) == 2
    assert {path.name for path in trial.folder.iterdir()} == {"mine.py", "runs", "tiny.yaml"}
    assert [path.name for path in trial.runs.iterdir()] == [".try"]
    assert "no experiments" in trial.h2h("list").stdout


def test_a_trial_raises_the_error_of_a_plugin_in_this_process(trial: Study) -> None:
    with pytest.raises(ZeroDivisionError, match=f"in process {os.getpid()}") as caught:
        trial.h2h("run", "tiny.yaml", "--try", "--only", "breaks")
    assert str(caught.traceback[-1].path).endswith("mine.py")


@pytest.mark.slow
def test_only_trains_some_variants_and_the_report_waits_for_the_others(study: Study) -> None:
    study.write(
        base={"train": {"steps": 4}, "evaluate": {"decode": "none"}},
        metrics={"primary": "test/token_accuracy", "report": []},
        design=[{"one_at_a_time": {"positional": ["rotary", "none"]}}],
    )
    first = study.run("--only", "rotary")
    assert "2 variants are left out by --only" in first.stdout
    assert [path.name.partition("-")[0] for path in study.directories()] == ["rotary"] * 2
    assert not (study.folder / "reports").exists()
    second = study.run("--no-report")
    assert "training 4 runs" in second.stderr
    assert not (study.folder / "reports").exists()
    study.run("--only", "none")
    assert study.page()


REFUSED = (
    ("--only", "rotery"),
    ("--steps", "3"),
    ("--try", "--retry"),
    ("--try", "--workers", "2"),
    ("--only", "rotary", "--fresh"),
    ("--stale", "--fresh"),
    ("--no-report", "--allow-partial"),
)


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_contradictory_options_are_one_line(trial: Study, options: tuple[str, ...]) -> None:
    (line,) = trial.h2h("run", "tiny.yaml", *options, code=2).stderr.splitlines()
    assert re.match(rf"h2h: ({'|'.join(option for option in options if option.startswith('--'))}) ", line)
