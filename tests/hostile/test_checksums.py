"""Every result file of a finished run is compared with its sha256 when it is read; damaged runs are retrained."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file

from headtohead.storage.run import RUN_FILES
from made import case_table

if TYPE_CHECKING:
    from .conftest import Refusal, SmallStudy


def flip(path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def replace(path: Path, other: Path) -> None:
    content = other.read_bytes()
    path.write_bytes(content if content != path.read_bytes() else content + b"\n")


def delete(path: Path, other: Path) -> None:
    path.unlink()


ABLATE, REPORT = ("ablate-heads", "RUN", "--no-decode", "--fresh"), ("report", "small")

READERS = {
    "checkpoint.safetensors": (("generate", "RUN", "the cat"), ("reproduce", "RUN"), ABLATE),
    "results.json": (REPORT, ("run", "small.yaml"), ("plan", "small.yaml"), ("reproduce", "RUN")),
    "metrics.jsonl": (REPORT, ("list",), ("status", "small")),
    "translations.tsv": (REPORT,),
    "attention/maps.safetensors": (REPORT,),
    "attention/probes.json": (REPORT, ABLATE),
    "heads.json": (REPORT, ("ablate-heads", "RUN")),
}
"""Commands that read a file."""


def trained(study: SmallStudy) -> dict[str, Any]:
    """Return the weights, maps and scores of every run."""
    return {path.name: _content(path) for path in study.runs()}


def modified(run: Path) -> dict[str, int]:
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


@pytest.fixture
def study(tmp_path: Path, small_study: SmallStudy, without_figures: None) -> SmallStudy:
    assert set(json.loads((small_study.run / "status.json").read_text())["files"]) == set(RUN_FILES)
    return small_study.copy(tmp_path)


def both(study: SmallStudy) -> tuple[Path, Path]:
    """Return the run that commands read, and another run of its variant."""
    return study.run, next(study.experiment.glob("sinusoidal-s2-*"))


@pytest.mark.parametrize(
    ("file", "command"),
    [
        pytest.param(file, command, marks=[pytest.mark.slow] if number and "checkpoint" not in file else [])
        for file, commands in READERS.items()
        for number, command in enumerate(commands)
    ],
)
def test_a_damaged_file_is_one_line_with_the_file_and_the_repair(
    study: SmallStudy, refusal: Refusal, file: str, command: tuple[str, ...]
) -> None:
    first, second = both(study)
    flip(first / file, second)
    line = refusal(study.call(*command))
    assert f"'{first.relative_to(study.folder) / file}' is damaged: its sha256 is not that in status.json" in line
    repair = "h2h run small.yaml --repair retrains the run"
    if file == "heads.json":
        repair = f"h2h ablate-heads {first.name} --fresh writes it anew"
    assert line.endswith(f"; {repair}")


@case_table(
    ("file", "damage"),
    [("results.json", flip), ("results.json", delete), ("checkpoint.safetensors", flip), ("metrics.jsonl", replace)],
    default=1,
)
def test_repair_retrains_exactly_the_damaged_run_with_equal_results(
    study: SmallStudy, small_study: SmallStudy, file: str, damage: Callable[[Path, Path], None]
) -> None:
    first, second = both(study)
    intact = modified(first)
    damage(second / file, first / file)
    done = study.call("run", "small.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    found = "is missing" if damage is delete else "is damaged: its sha256 is not that in status.json"
    assert f"1 of 4 finished runs damaged: {second.name} ({file} {found}); retraining" in done.stdout
    assert trained(study) == trained(small_study)
    assert modified(first) == intact
    assert len(list((study.folder / "runs/small/.archived").glob(f"*/{second.name}/status.json"))) == 1
    assert "none of 4 finished runs is damaged" in study.call("run", "small.yaml", "--repair").stdout


def test_repair_removes_damaged_heads_and_retrains_nothing(study: SmallStudy) -> None:
    first, second = both(study)
    flip(first / "heads.json", second)
    intact = modified(first / "attention")
    done = study.call("run", "small.yaml", "--repair")
    assert done.returncode == 0, done.stderr
    assert f"heads.json of {first.name} is damaged and was removed; h2h ablate-heads {first.name}" in done.stdout
    assert "none of 4 finished runs is damaged" in done.stdout
    assert modified(first / "attention") == intact
    assert not (first / "heads.json").exists()
    assert study.call("report", "small").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("file", ["results.json", "attention/maps.safetensors"])
def test_a_removed_file_is_shown_by_status_and_the_same_command_retrains_the_run(
    study: SmallStudy, small_study: SmallStudy, refusal: Refusal, file: str
) -> None:
    first = study.run
    (first / file).unlink()
    status = study.call("status", "small").stdout
    assert "4 runs: 3 DONE, 1 INTERRUPTED" in status
    assert f"{first.name} INTERRUPTED at step 8: {file} is missing" in status
    line = refusal(study.call("generate", "RUN", "the cat"))
    assert line == f"run '{first.name}': {file} is missing; h2h run small.yaml --repair retrains the run"
    assert "3 of 4 runs have a result" in study.call("report", "small").stdout
    report = (study.folder / "reports/small/report.md").read_text()
    assert f"{file} is missing" in report
    assert f"{file} is missing" in study.call("plan", "small.yaml").stdout
    done = study.call("run", "small.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert trained(study) == trained(small_study)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("test/exact_match", 1.5, "test/exact_match is '1.5', expected a number from 0 to 1"),
        ("test/chrf", "50", "test/chrf is '50', expected a number from 0 to 100"),
        ("system/step_ms", 10**400, "system/step_ms is '1000"),
    ],
)
def test_scores_outside_their_range_are_refused(
    study: SmallStudy, refusal: Refusal, name: str, value: object, expected: str
) -> None:
    study.change(study.run / "results.json", lambda results: results | {"metrics": {name: value}})
    study.recompute_checksums()
    assert f"metrics: {expected}" in refusal(study.call("report", "small"))


@case_table("line", [{"values": {"valid/token_accuracy": 7}}, {"step": -4}, {"time": float("nan")}], ids=str, default=2)
def test_damaged_lines_of_a_history_are_omitted_and_counted(study: SmallStudy, line: dict[str, Any]) -> None:
    whole = {"step": 4, "epoch": 1.0, "time": 1.7e9, "values": {"valid/loss": 1.0}}
    with (study.run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(whole | line) + "\n")
    study.recompute_checksums()
    done = study.call("report", "small")
    assert done.returncode == 0, done.stderr
    report = (study.folder / "reports/small/report.md").read_text()
    assert "Damaged lines of training histories, for example incomplete after a crash, are omitted: 1." in report


@pytest.mark.slow
def test_a_damaged_reused_run_is_trained_in_the_experiment_that_reuses_it(
    study: SmallStudy, small_study: SmallStudy
) -> None:
    shutil.copy(study.folder / "small.yaml", study.folder / "other.yaml")
    assert study.call("run", "other.yaml").returncode == 0
    assert study.runs("other") == []
    first = study.run
    flip(first / "checkpoint.safetensors", first)
    damaged = modified(first)
    done = study.call("run", "other.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"1 reused runs of other experiments damaged: small/{first.name} (checkpoint.safetensors is" in done.stdout
    assert "training in 'other' instead, the other experiments are not changed" in done.stdout
    assert modified(first) == damaged
    assert [run.name for run in study.runs("other")] == [first.name]


@pytest.mark.slow
def test_a_run_without_its_record_is_retrained_by_the_same_command(study: SmallStudy, small_study: SmallStudy) -> None:
    (study.run / "run.json").unlink()
    assert "4 runs: 3 DONE, 1 INTERRUPTED" in study.call("status", "small").stdout
    assert study.call("run", "small.yaml").returncode == 0
    assert trained(study) == trained(small_study)
    assert "none of 4 finished runs is damaged" in study.call("run", "small.yaml", "--repair").stdout


@pytest.mark.slow
def test_the_damaged_runs_of_a_sweep_are_repaired_too(study: SmallStudy) -> None:
    text = (study.folder / "small.yaml").read_text()
    (study.folder / "tuned.yaml").write_text(text + "tune: {train.lr: [0.01, 0.001]}\ntune_seeds: 1\n")
    assert study.call("run", "tuned.yaml").returncode == 0
    run = study.runs("tuned-tuning")[0]
    flip(run / "results.json", run)
    expected = f"'{run.relative_to(study.folder)}/results.json' is damaged: its sha256 is not that in status.json"
    done = study.call("run", "tuned.yaml")
    assert done.stderr == f"h2h: {expected}; h2h run tuned.yaml --repair retrains the run\n"
    done = study.call("run", "tuned.yaml", "--repair")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^1 of \d+ finished runs damaged: {run.name}", done.stdout, re.MULTILINE)
