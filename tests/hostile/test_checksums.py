"""Every result file of a finished run is compared with its sha256 when it is read; damaged runs are retrained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from safetensors.numpy import load_file

from headtohead.storage.run import RUN_FILES
from made import case_table

Command = Callable[..., CompletedProcess[str]]
Refusal = Callable[[object], str]
Figures = Callable[[], AbstractContextManager[None]]

FILE = """
question: Is it intact?
base:
  data: {dataset: toy-grammar, size: 200}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0.1}
  train: {steps: 12, batch_tokens: 128, evaluate_every: 4}
  evaluate: {test_limit: 8, max_length: 6}
probes:
- {source: the black cat eats}
baseline: {positional: sinusoidal}
seeds: 2
"""


def flip(path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def truncate(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def replace(path: Path, other: Path) -> None:
    content = other.read_bytes()
    path.write_bytes(content if content != path.read_bytes() else content + b"\n")


def delete(path: Path, other: Path) -> None:
    path.unlink()


DAMAGES = {"flipped bit": flip, "truncated": truncate, "empty": empty, "another run's": replace}

RUN = "the first run"

READERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "checkpoint.safetensors": (
        ("translate", RUN, "the cat"),
        ("attention", RUN, "the cat"),
        ("reproduce", RUN),
        ("ablate-heads", RUN, "--no-decode", "--fresh"),
        ("trace", RUN, "the cat"),
    ),
    "results.json": (("report", "tiny"), ("run", "tiny.yaml"), ("plan", "tiny.yaml"), ("reproduce", RUN)),
    "metrics.jsonl": (("report", "tiny"), ("list",), ("status", "tiny")),
    "translations.tsv": (("report", "tiny"),),
    "attention/maps.safetensors": (("report", "tiny"),),
    "attention/probes.json": (("report", "tiny"), ("ablate-heads", RUN, "--no-decode", "--fresh")),
    "heads.json": (("report", "tiny"), ("ablate-heads", RUN)),
}


@dataclass(frozen=True)
class Case:
    """A damage of a file, and a command that reads the file."""

    file: str
    damage: str
    typed: tuple[str, ...]

    @property
    def kind(self) -> str:
        """One case of each command, and of each file."""
        return self.typed[0] if self.file == "checkpoint.safetensors" else self.file

    @property
    def name(self) -> str:
        return f"{self.file}-{self.typed[0]}-{self.damage}".replace(" ", "-")


CASES = [Case(file, damage, typed) for damage in DAMAGES for file, commands in READERS.items() for typed in commands]


@dataclass(frozen=True)
class Study:
    """The experiment file, and its runs."""

    folder: Path
    cache: Path
    call: Command

    def h2h(self, *arguments: str) -> CompletedProcess[str]:
        typed = [argument if argument != RUN else self.runs()[0].name for argument in arguments]
        if typed[0] == "run":
            typed += ["--no-tracking", "--workers", "1"]
        return self.call(self.folder, *typed, H2H_CACHE=str(self.cache))

    def runs(self, experiment: str = "tiny") -> list[Path]:
        return sorted(path.parent for path in (self.folder / "runs" / experiment).glob("[!.]*/run.json"))

    def results(self, experiment: str = "tiny") -> dict[str, Any]:
        """Return the weights, maps and scores of every run."""
        return {path.name: _content(path) for path in self.runs(experiment)}

    def modified(self, run: Path) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in run.rglob("*")}


def _content(run: Path) -> dict[str, Any]:
    metrics = json.loads((run / "results.json").read_text())["metrics"]
    tensors = [load_file(run / name) for name in ("checkpoint.safetensors", "attention/maps.safetensors")]
    return {
        "scores": {name: value for name, value in metrics.items() if not name.startswith("system/")},
        "tensors": {name: value.tobytes() for part in tensors for name, value in part.items()},
        "translations": (run / "translations.tsv").read_text(),
        "execution": json.loads((run / "run.json").read_text())["execution"],
        "attempt": json.loads((run / "status.json").read_text())["state"],
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command, no_figures: Figures) -> Study:
    """A study with a file of every kind."""
    study = Study(tmp_path_factory.mktemp("undisturbed"), cache, h2h_here)
    (study.folder / "tiny.yaml").write_text(FILE)
    for typed in (("run", "tiny.yaml"), ("ablate-heads", "tiny", "--no-decode")):
        with no_figures():
            done = study.h2h(*typed)
        assert done.returncode == 0, done.stdout + done.stderr
    for run in study.runs():
        assert set(json.loads((run / "status.json").read_text())["files"]) == set(RUN_FILES)
    return study


@pytest.fixture
def study(tmp_path: Path, undisturbed: Study, without_figures: None) -> Study:
    shutil.copytree(undisturbed.folder, tmp_path, dirs_exist_ok=True)
    return Study(tmp_path, undisturbed.cache, undisturbed.call)


def test_a_damaged_file_is_one_line_with_the_file_and_the_repair(study: Study, refusal: Refusal, case: Case) -> None:
    first, second = study.runs()
    DAMAGES[case.damage](first / case.file, second / case.file)
    line = refusal(study.h2h(*case.typed))
    assert f"'{first.relative_to(study.folder) / case.file}' is damaged: its sha256 is not that in status.json" in line
    repair = "h2h run tiny.yaml --repair retrains the run"
    if case.file == "heads.json":
        repair = f"h2h ablate-heads {first.name} --fresh writes it anew"
    assert line.endswith(f"; {repair}")


REPAIRED = [name for name in RUN_FILES if name != "heads.json"]


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("results.json", flip),
        *(
            pytest.param(file, damage, marks=pytest.mark.slow, id=f"{file}-{damage.__name__}")
            for file in REPAIRED
            for damage in (flip, empty, delete, replace)
            if (file, damage) != ("results.json", flip)
        ),
    ],
)
def test_repair_retrains_exactly_the_damaged_run_with_equal_results(
    study: Study, undisturbed: Study, file: str, damage: Callable[[Path, Path], None]
) -> None:
    first, second = study.runs()
    intact = study.modified(first)
    damage(second / file, first / file)
    done = study.h2h("run", "tiny.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    found = "is missing" if damage is delete else "is damaged: its sha256 is not that in status.json"
    assert f"1 of 2 finished runs damaged: {second.name} ({file} {found}); retraining" in done.stdout
    assert study.results() == undisturbed.results()
    assert study.modified(first) == intact
    assert len(list((study.folder / "runs/tiny/.archived").glob(f"*/{second.name}/status.json"))) == 1
    assert "none of 2 finished runs is damaged" in study.h2h("run", "tiny.yaml", "--repair").stdout


def test_repair_removes_damaged_heads_and_retrains_nothing(study: Study) -> None:
    first, second = study.runs()
    flip(first / "heads.json", second)
    modified = study.modified(first / "attention")
    done = study.h2h("run", "tiny.yaml", "--repair")
    assert done.returncode == 0, done.stderr
    assert f"heads.json of {first.name} is damaged and was removed; h2h ablate-heads {first.name}" in done.stdout
    assert "none of 2 finished runs is damaged" in done.stdout
    assert study.modified(first / "attention") == modified
    assert not (first / "heads.json").exists()
    assert study.h2h("report", "tiny").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "results.json",
        *(pytest.param(name, marks=pytest.mark.slow) for name in REPAIRED if name not in ("results.json", "run.json")),
    ],
)
def test_a_removed_file_is_shown_by_status_and_the_same_command_retrains_the_run(
    study: Study, undisturbed: Study, refusal: Refusal, file: str
) -> None:
    first = study.runs()[0]
    (first / file).unlink()
    status = study.h2h("status", "tiny").stdout
    assert "2 runs: 1 INTERRUPTED, 1 DONE" in status
    assert f"{first.name} INTERRUPTED at step 12: {file} is missing" in status
    line = refusal(study.h2h("translate", RUN, "the cat"))
    assert line == f"run '{first.name}': {file} is missing; h2h run tiny.yaml --repair retrains the run"
    assert "1 of 2 runs have a result" in study.h2h("report", "tiny").stdout
    report = (study.folder / "reports/tiny/report.md").read_text()
    assert f"{file} is missing" in report
    assert f"{file} is missing" in study.h2h("plan", "tiny.yaml").stdout
    done = study.h2h("run", "tiny.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert study.results() == undisturbed.results()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("test/exact_match", 1.5, "test/exact_match is '1.5', expected a number from 0 to 1"),
        ("test/chrf", "50", "test/chrf is '50', expected a number from 0 to 100"),
        ("system/step_ms", 10**400, "system/step_ms is '1000"),
    ],
)
def test_scores_outside_their_range_are_refused(
    study: Study, refusal: Refusal, record_checksums: Callable[[Path], None], name: str, value: object, expected: str
) -> None:
    run = study.runs()[0]
    results = json.loads((run / "results.json").read_text())
    results["metrics"][name] = value
    (run / "results.json").write_text(json.dumps(results))
    record_checksums(run)
    assert f"metrics: {expected}" in refusal(study.h2h("report", "tiny"))


@case_table("line", [{"values": {"valid/token_accuracy": 7}}, {"step": -4}, {"time": float("nan")}], ids=str, default=2)
def test_damaged_lines_of_a_history_are_omitted_and_counted(
    study: Study, record_checksums: Callable[[Path], None], line: dict[str, Any]
) -> None:
    run = study.runs()[0]
    whole = {"step": 4, "epoch": 1.0, "time": 1.7e9, "values": {"valid/loss": 1.0}}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(whole | line) + "\n")
    record_checksums(run)
    done = study.h2h("report", "tiny")
    assert done.returncode == 0, done.stderr
    report = (study.folder / "reports/tiny/report.md").read_text()
    assert "Damaged lines of training histories, for example incomplete after a crash, are omitted: 1." in report


@pytest.mark.slow
def test_a_damaged_reused_run_is_trained_in_the_experiment_that_reuses_it(study: Study, undisturbed: Study) -> None:
    (study.folder / "other.yaml").write_text(FILE)
    assert study.h2h("run", "other.yaml").returncode == 0
    assert study.runs("other") == []
    first = study.runs()[0]
    flip(first / "checkpoint.safetensors", first)
    damaged = study.modified(first)
    done = study.h2h("run", "other.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"1 reused runs of other experiments damaged: tiny/{first.name} (checkpoint.safetensors is" in done.stdout
    assert "training in 'other' instead, the other experiments are not changed" in done.stdout
    assert study.modified(first) == damaged
    assert [run.name for run in study.runs("other")] == [first.name]


@pytest.mark.slow
def test_a_run_without_its_record_is_retrained_by_the_same_command(study: Study, undisturbed: Study) -> None:
    (study.runs()[0] / "run.json").unlink()
    assert "2 runs: 1 INTERRUPTED, 1 DONE" in study.h2h("status", "tiny").stdout
    assert study.h2h("run", "tiny.yaml").returncode == 0
    assert study.results() == undisturbed.results()
    assert "none of 2 finished runs is damaged" in study.h2h("run", "tiny.yaml", "--repair").stdout


@pytest.mark.slow
def test_the_damaged_runs_of_a_sweep_are_repaired_too(study: Study) -> None:
    (study.folder / "tuned.yaml").write_text(FILE + "tune: {train.lr: [0.01, 0.001]}\ntune_seeds: 1\n")
    assert study.h2h("run", "tuned.yaml").returncode == 0
    run = study.runs("tuned-tuning")[0]
    flip(run / "results.json", run)
    expected = f"'{run.relative_to(study.folder)}/results.json' is damaged: its sha256 is not that in status.json"
    done = study.h2h("run", "tuned.yaml")
    assert done.stderr == f"h2h: {expected}; h2h run tuned.yaml --repair retrains the run\n"
    done = study.h2h("run", "tuned.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"1 of 2 finished runs damaged: {run.name}" in done.stdout
