"""An experiment that is killed at any moment and resumed has the results of an uninterrupted experiment."""

import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing

import psutil
import pytest
from safetensors.torch import load_file

from headtohead import files
from headtohead.execution.reproduce import reproduce
from headtohead.training import checkpoint
from made.fake_study import record_checksums
from made.study import Study, wait_for

EVERY_STEP = ("--set", "train.checkpoint_seconds=0")


def worker_of(study: Study) -> int:
    """Return the process that trains; the parent also holds leases while it creates stacks."""
    return next(study.holders()[run] for run, state in study.states().items() if state == "RUNNING")


@pytest.mark.slow
def test_a_killed_worker_stops_only_its_stack_which_resumes(study: Study, undisturbed: Study) -> None:
    def kill() -> None:
        wait_for(lambda: any(study.experiment.glob(".stacks/*/resume-*.safetensors")))
        os.kill(worker_of(study), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    done = study.run(*EVERY_STEP)
    killer.join()
    assert "KILLED (the process died (SIGKILL))" in done.stdout + done.stderr
    assert study.results() == undisturbed.results()
    assert {attempt["state"] for attempt in study.attempts()} == {"KILLED"}


@pytest.mark.slow
def test_a_worker_dies_with_its_killed_parent(study: Study) -> None:
    study.write(base={"train": {"steps": 100_000}})
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(study.step)
    worker = worker_of(study)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not psutil.pid_exists(worker), seconds=10)


@pytest.mark.slow
@pytest.mark.timeout(600)  # four commands, two of which import mlflow
def test_a_parent_killed_at_every_moment_and_the_same_command_again(study: Study, undisturbed: Study) -> None:
    """Each command continues what the killed command before it left; the third one moves the stack to the CPU."""
    moments: list[Callable[[], object]] = [
        lambda: bool(study.holders()),
        lambda: study.step() >= 25,
        lambda: any((path / "translations.tsv").exists() for path in study.directories()),
    ]
    for number, reached in enumerate(moments):
        if reached is moments[-1]:  # training has not ended, because no translations exist
            for path in study.experiment.glob(".stacks/*/stack.json"):
                files.write_json(path, files.read_json(path) | {"device": "cuda"})
        tracking = () if number == 1 else ("--no-tracking",)
        parent = study.start(*tracking, *EVERY_STEP, "--device", "cpu")
        wait_for(reached)
        parent.kill()
        parent.communicate()
    done = study.run("--device", "cpu", tracking=True)
    assert study.results() == undisturbed.results()
    records = [files.read_json(path / "run.json") for path in study.directories()]
    assert {record["execution"]["device"] for record in records} == {"cpu"}
    with closing(sqlite3.connect(study.folder / "mlflow.db")) as connection:
        rows = connection.execute(
            "select tags.value from tags join runs using (run_uuid) "
            "where tags.key = 'h2h.run_hash' and runs.lifecycle_stage = 'active'"
        ).fetchall()
    assert sorted(value for (value,) in rows) == sorted(record["run_hash"] for record in records), (
        done.stdout + (study.experiment / "shipper-mlflow.log").read_text()
    )


@pytest.mark.slow
def test_a_run_directory_deleted_during_training(study: Study, undisturbed: Study) -> None:
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(study.step)
    deleted = study.directories()[0]
    shutil.rmtree(deleted, ignore_errors=True)
    output, _ = parent.communicate(timeout=120)
    assert parent.returncode == 2, output
    assert f"{deleted.name}' was moved or deleted during the run" in output
    study.run()
    assert study.results() == undisturbed.results()


def test_reproduce_repeats_a_run_to_the_last_bit_without_its_time_limit(finished: Study) -> None:
    for record in finished.experiment.glob(".stacks/*/stack.json"):
        files.write_json(record, files.read_json(record) | {"timeout_seconds": 0.01})
    assert "bit-for-bit equal" in finished.h2h("reproduce", finished.directories()[0].name).stdout


@pytest.mark.slow
def test_reproduce_reports_the_difference_of_weights(finished: Study) -> None:
    path = finished.directories()[0]
    weights = load_file(path / "checkpoint.safetensors")
    weights["lm_head.bias"][0, 0] += 0.5
    checkpoint.save(path / "checkpoint.safetensors", weights, {})
    record_checksums(path)
    is_equal, summary = reproduce(path.name, finished.runs)
    assert not is_equal
    assert "weights differ by at most 0.5" in summary
