"""Every result file of a finished run is compared with its sha256 when it is read; damaged runs are retrained."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headtohead import files
from headtohead.execution.repair import find_damage, repair
from headtohead.storage.run import RUN_FILES
from made import case_table
from made.fake_study import edit
from made.study import Study


def flip(path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    path.write_bytes(content)


def exchange(path: Path, other: Path) -> None:
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
    "examples.safetensors": (REPORT,),
    "attention/maps.safetensors": (REPORT,),
    "attention/probes.json": (REPORT, ABLATE),
    "heads.json": (REPORT, ("ablate-heads", "RUN")),
}
"""Commands that read a file."""


def modified(run: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run.rglob("*")}


def check_results(study: Study, expected: Study) -> None:
    """Check that every run is done, with the scores, weights, maps and translations of another study."""
    assert {*study.states().values()} == {"DONE"}
    assert study.results() == expected.results()
    for path in study.directories():
        for name in ("attention/maps.safetensors", "translations.tsv", "examples.safetensors"):
            assert (path / name).read_bytes() == (
                expected.experiment / path.name / name
            ).read_bytes()
        executions = [
            files.read_json(own.experiment / path.name / "run.json")["execution"]
            for own in (study, expected)
        ]
        assert executions[0] == executions[1]


@pytest.fixture
def runs(study: Any) -> tuple[Path, Path]:
    """The run that commands read, and another run of its variant."""
    assert {*files.read_json(study.first / "status.json")["files"]} == {*RUN_FILES}
    return study.first, next(study.experiment.glob("sinusoidal-s2-*"))


@pytest.mark.parametrize(
    ("file", "command"),
    [
        pytest.param(
            file, command, marks=[pytest.mark.slow] if number and "checkpoint" not in file else []
        )
        for file, commands in READERS.items()
        for number, command in enumerate(commands)
    ],
)
def test_a_damaged_file_is_one_line_with_the_file_and_the_repair(
    study: Any, runs: tuple[Path, Path], file: str, command: tuple[str, ...]
) -> None:
    first, second = runs
    flip(first / file, second)
    line = study.refusal(*command)
    assert (
        f"'{first.relative_to(study.folder) / file}' is damaged: its sha256 is not that in status.json"
        in line
    )
    repair = "h2h run small.yaml --repair retrains the run"
    if file == "heads.json":
        repair = f"h2h ablate-heads {first.name} --fresh writes it anew"
    assert line.endswith(f"; {repair}")


@case_table(
    ("file", "damage"),
    [
        ("results.json", flip),
        ("results.json", delete),
        ("checkpoint.safetensors", flip),
        ("metrics.jsonl", exchange),
    ],
    default=1,
)
def test_repair_retrains_exactly_the_damaged_run_with_equal_results(
    study: Any,
    runs: tuple[Path, Path],
    small_study: Any,
    file: str,
    damage: Callable[[Path, Path], None],
) -> None:
    first, second = runs
    intact = modified(first)
    damage(second / file, first / file)
    done = study.run("--repair")
    found = (
        "is missing" if damage is delete else "is damaged: its sha256 is not that in status.json"
    )
    assert (
        f"1 of 4 finished runs damaged: {second.name} ({file} {found}); retraining" in done.stdout
    )
    check_results(study, small_study)
    assert modified(first) == intact
    assert len(list(study.experiment.glob(f".archived/*/{second.name}/status.json"))) == 1
    assert "none of 4 finished runs is damaged" in study.run("--repair").stdout


def test_repair_removes_damaged_heads_and_retrains_nothing(
    study: Any, runs: tuple[Path, Path]
) -> None:
    first, second = runs
    flip(first / "heads.json", second)
    intact = modified(first / "attention")
    done = study.run("--repair")
    assert (
        f"heads.json of {first.name} is damaged and was removed; h2h ablate-heads {first.name}"
        in done.stdout
    )
    assert "none of 4 finished runs is damaged" in done.stdout
    assert modified(first / "attention") == intact
    assert not (first / "heads.json").exists()
    study.h2h("report", "small")


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["results.json", "attention/maps.safetensors", "examples.safetensors"]
)
def test_a_removed_file_is_shown_by_status_and_the_same_command_retrains_the_run(
    study: Any, small_study: Study, file: str
) -> None:
    first = study.first
    (first / file).unlink()
    status = study.h2h("status", "small").stdout
    assert "4 runs: 3 DONE, 1 INTERRUPTED" in status
    assert f"{first.name} INTERRUPTED at step 8: {file} is missing" in status
    line = study.refusal("generate", "RUN", "the cat")
    assert (
        line
        == f"run '{first.name}': {file} is missing; h2h run small.yaml --repair retrains the run"
    )
    assert "3 of 4 runs have a result" in study.h2h("report", "small").stdout
    assert f"{file} is missing" in study.page()
    assert f"{file} is missing" in study.h2h("plan", "small.yaml").stdout
    study.run()
    check_results(study, small_study)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("test/exact_match", 1.5, "test/exact_match is '1.5', expected a number from 0 to 1"),
        ("test/chrf", "50", "test/chrf is '50', expected a number from 0 to 100"),
        ("system/step_ms", 10**400, "system/step_ms is '1000"),
    ],
)
def test_scores_outside_their_range_are_refused(
    study: Any, name: str, value: object, expected: str
) -> None:
    edit(study.first / "results.json", metrics={name: value})
    study.record_checksums()
    assert f"metrics: {expected}" in study.refusal(*REPORT)


@case_table(
    "line",
    [{"values": {"valid/token_accuracy": 7}}, {"step": -4}, {"time": float("nan")}],
    ids=str,
    default=2,
)
def test_damaged_lines_of_a_history_are_omitted_and_counted(
    study: Any, line: dict[str, Any]
) -> None:
    whole = {"step": 4, "epoch": 1.0, "time": 1.7e9, "values": {"valid/loss": 1.0}}
    with (study.first / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(whole | line) + "\n")
    study.record_checksums()
    study.h2h("report", "small")
    assert (
        "Damaged lines of training histories, for example incomplete after a crash, are omitted: 1."
        in study.page()
    )


@pytest.mark.slow
def test_a_damaged_reused_run_is_trained_in_the_experiment_that_reuses_it(study: Any) -> None:
    shutil.copy(study.file, study.folder / "other.yaml")
    other = replace(study, name="other")
    other.run()
    assert other.directories() == []
    first = study.first
    flip(first / "checkpoint.safetensors", first)
    damaged = modified(first)
    done = other.run("--repair")
    assert (
        f"1 reused run of other experiments damaged: small/{first.name} (checkpoint.safetensors is"
        in done.stdout
    )
    assert "training in 'other' instead, the other experiments are not changed" in done.stdout
    assert modified(first) == damaged
    assert [run.name for run in other.directories()] == [first.name]


def test_a_refused_path_of_a_reused_run_does_not_end_the_check_of_the_others(
    study: Any, tmp_path: Path
) -> None:
    """The first reused run is a symbolic link, the second has a damaged file."""
    other = study.runs / "other"
    other.mkdir()
    planned = files.read_json(study.experiment / "experiment.json")
    reused = [run | {"reused_from": f"small/{run['directory']}"} for run in planned["runs"]]
    files.write_json(other / "experiment.json", planned | {"name": "other", "runs": reused})
    linked, damaged, *_ = (study.experiment / run["directory"] for run in planned["runs"])
    linked.rename(tmp_path / "moved")
    linked.symlink_to(tmp_path / "moved")
    flip(damaged / "checkpoint.safetensors", damaged)
    damage = find_damage(other)
    assert damage.references == {f"small/{linked.name}", f"small/{damaged.name}"}
    lines: list[str] = []
    repair(damage, lines.append)
    assert lines[0] == "none of 0 finished runs is damaged"
    assert "2 reused runs of other experiments damaged: " in lines[1]
    assert "is a symbolic link, which is not allowed" in lines[1]
    assert "checkpoint.safetensors is damaged" in lines[1]


@pytest.mark.slow
def test_a_run_without_its_record_is_retrained_by_the_same_command(
    study: Any, small_study: Study
) -> None:
    (study.first / "run.json").unlink()
    assert "4 runs: 3 DONE, 1 INTERRUPTED" in study.h2h("status", "small").stdout
    study.run()
    check_results(study, small_study)
    assert "none of 4 finished runs is damaged" in study.run("--repair").stdout


@pytest.mark.slow
def test_the_damaged_runs_of_a_sweep_are_repaired_too(study: Any) -> None:
    tuned, sweep = replace(study, name="tuned"), replace(study, name="tuned-tuning")
    tuned.write(tune={"train.lr": [0.01, 0.001]}, tune_seeds=1)
    tuned.run()
    run = sweep.directories()[0]
    flip(run / "results.json", run)
    expected = f"'{run.relative_to(study.folder)}/results.json' is damaged: its sha256 is not that in status.json"
    assert (
        tuned.refusal("run", "tuned.yaml")
        == f"{expected}; h2h run tuned.yaml --repair retrains the run"
    )
    done = tuned.run("--repair")
    assert re.search(rf"^1 of \d+ finished runs damaged: {run.name}", done.stdout, re.MULTILINE)
