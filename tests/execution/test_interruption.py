"""An experiment that is killed at any moment and resumed has the results of an uninterrupted experiment."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from headtohead import files
from headtohead.errors import is_disk_error
from headtohead.storage.histories import read_metrics
from headtohead.storage.stack import stack_folders

if TYPE_CHECKING:
    from .conftest import Study

Check = Callable[["Study", "Study"], None]
EVERY_STEP = ("--set", "train.checkpoint_seconds=0")


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def step_of(study: Study) -> int:
    steps = [(folder.read_progress() or {"step": 0})["step"] for folder in stack_folders(study.experiment)]
    return max(steps, default=0)


def worker_of(study: Study) -> int:
    """Return the process that trains; the parent also holds leases while it creates stacks."""
    run = next(name for name, state in study.states().items() if state == "RUNNING")
    return int(files.read_json(study.experiment / ".leases" / f"{run}.json")["pid"])


def kill(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.communicate()
    assert parent.stdout is not None
    parent.stdout.close()


def is_leased(study: Study) -> bool:
    return any(study.experiment.glob(".leases/*.json"))


@pytest.mark.parametrize("resume_point", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_killed_worker_stops_only_its_stack_which_resumes(
    study: Study, undisturbed: Study, same_results: Check, resume_point: bool
) -> None:
    parent = study.start("--no-tracking", *(EVERY_STEP if resume_point else ()))
    wait_for(lambda: set(study.states().values()) == {"RUNNING"})
    if resume_point:
        wait_for(lambda: any(study.experiment.glob(".stacks/*/resume-*.safetensors")))
    os.kill(worker_of(study), signal.SIGKILL)
    output, _ = parent.communicate(timeout=120)
    assert parent.returncode == 0, output
    assert "KILLED (the process died (SIGKILL))" in output
    same_results(study, undisturbed)
    attempts = [files.read_json(p / "attempts" / "1.json") for p in study.directories()]
    assert {attempt["state"] for attempt in attempts} == {"KILLED"}


@pytest.mark.slow
def test_a_worker_dies_with_its_killed_parent(study: Study) -> None:
    study.write(base={"train": {"steps": 100_000}})
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(lambda: step_of(study) >= 1)
    worker = worker_of(study)
    kill(parent)
    wait_for(lambda: not psutil.pid_exists(worker), seconds=10)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["at once", "leased", "training", "scoring"])
def test_a_killed_parent_and_the_same_command_again(
    study: Study, undisturbed: Study, same_results: Check, store_template: Path, moment: str
) -> None:
    if moment != "at once":  # then the store is created too
        shutil.copyfile(store_template, study.folder / "mlflow.db")
    parent = study.start(*EVERY_STEP)
    reached = {
        "at once": lambda: (study.experiment / "experiment.json").exists(),
        "leased": lambda: is_leased(study),
        "training": lambda: step_of(study) >= 25,
        "scoring": lambda: any((p / "translations.tsv").exists() for p in study.directories()),
    }[moment]
    wait_for(reached)
    kill(parent)
    done = study.run(tracking=True)
    same_results(study, undisturbed)
    log = (study.experiment / "shipper-mlflow.log").read_text()
    assert runs_by_key(study.folder / "mlflow.db") == {
        files.read_json(path / "run.json")["run_hash"]: 1 for path in study.directories()
    }, done.stdout + log


@pytest.mark.slow
def test_a_run_directory_deleted_during_training(study: Study, undisturbed: Study, same_results: Check) -> None:
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(lambda: step_of(study) >= 1)
    deleted = study.directories()[0]
    shutil.rmtree(deleted, ignore_errors=True)
    output, _ = parent.communicate(timeout=120)
    assert parent.returncode == 2, output
    assert f"{deleted.name}' was moved or deleted during the run; the same command trains it again" in output
    study.run()
    same_results(study, undisturbed)


@pytest.mark.slow
def test_a_stack_resumed_on_another_device_records_that_device(study: Study) -> None:
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(lambda: step_of(study) >= 1)
    kill(parent)
    for path in study.experiment.glob(".stacks/*/stack.json"):
        files.write_json(path, files.read_json(path) | {"device": "cuda"})
    for path in study.experiment.glob("*/run.json"):
        record = files.read_json(path)
        record["execution"]["device"] = "cuda"
        files.write_json(path, record)
    study.run("--device", "cpu")
    records = [files.read_json(path / "run.json") for path in study.directories()]
    assert {record["execution"]["device"] for record in records} == {"cpu"}


def runs_by_key(database: Path) -> dict[str, int]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "select tags.value, count(*) from tags join runs using (run_uuid) "
            "where tags.key = 'h2h.run_hash' and runs.lifecycle_stage = 'active' group by tags.value"
        )
        return dict(rows.fetchall())


def test_a_truncated_line_of_metrics_is_skipped_and_hides_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    files.append_lines(path, [{"step": 1, "time": 1.0, "values": {}}])
    with path.open("a") as handle:
        handle.write('{"step": 2, "val')
    files.append_lines(path, [{"step": 3, "time": 3.0, "values": {}}])
    assert [line and line.step for line in read_metrics(path)] == [1, None, 3]


def test_reproduce_repeats_a_run_to_the_last_bit(undisturbed: Study) -> None:
    name = undisturbed.directories()[0].name
    done = undisturbed.here(undisturbed.folder, "reproduce", name, H2H_CACHE=str(undisturbed.cache))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit-for-bit equal" in done.stdout


@pytest.mark.slow
def test_reproduce_ignores_the_time_limit_of_the_original_training(study: Study) -> None:
    study.run()
    for record in study.experiment.glob(".stacks/*/stack.json"):
        record.write_text(json.dumps(json.loads(record.read_text()) | {"timeout_seconds": 0.01}))
    done = study.here(study.folder, "reproduce", study.directories()[0].name, H2H_CACHE=str(study.cache))
    assert done.returncode == 0, done.stderr


def test_a_write_that_times_out_is_an_error_of_the_disk() -> None:
    assert is_disk_error(OSError(errno.ETIMEDOUT, "Connection timed out"))


@pytest.mark.slow
def test_reproduce_reports_the_difference_of_weights(
    study: Study, undisturbed: Study, record_checksums: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from safetensors.torch import load_file

    from headtohead.cli.progress import LineWatcher
    from headtohead.execution.reproduce import reproduce
    from headtohead.training import checkpoint

    monkeypatch.setenv("H2H_CACHE", str(study.cache))
    shutil.copytree(undisturbed.runs, study.runs)
    path = study.directories()[0]
    weights = load_file(path / "checkpoint.safetensors")
    weights["lm_head.bias"][0, 0] += 0.5
    checkpoint.save(path / "checkpoint.safetensors", weights, {})
    record_checksums(path)
    reproduction = reproduce(path.name, study.runs, LineWatcher())
    assert not reproduction.equal
    assert "weights differ by at most 0.5" in reproduction.summary
