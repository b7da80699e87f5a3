"""An experiment that is killed and resumed has the results of an uninterrupted one; a slow store delays nothing."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from headtohead import api, files
from headtohead.execution.reproduce import reproduce
from headtohead.tracking import shipper
from headtohead.training import checkpoint
from made import serving
from made.fake_study import record_checksums
from made.study import Study, wait_for

START_SERVER_AND_INTERRUPT = """
import os, signal, time
from multiprocessing import forkserver, get_context
from headtohead.execution.local import LocalLauncher

LocalLauncher().warm()
server = forkserver._forkserver._forkserver_pid
for _ in range(20):
    os.kill(server, signal.SIGINT)
    time.sleep(0.02)
print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
code = "import os, signal; os._exit(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
worker = get_context("forkserver").Process(target=exec, args=(code,))
worker.start()
worker.join()
print(worker.exitcode, forkserver._forkserver._forkserver_pid == server)
"""

EVERY_STEP = ("--set", "train.checkpoint_seconds=0")


def worker_of(study: Study) -> int:
    """Return the process that trains; the parent also holds leases while it creates stacks."""
    return next(study.holders()[run] for run, state in study.states().items() if state == "RUNNING")


@pytest.mark.slow
def test_a_killed_worker_stops_only_its_stack_which_resumes(
    study: Study, undisturbed: Study
) -> None:
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
def test_ctrl_c_does_not_reach_the_server_of_workers_while_it_starts() -> None:
    command = [sys.executable, "-c", START_SERVER_AND_INTERRUPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n0 True\n", "")


@pytest.mark.slow
def test_a_worker_dies_with_its_killed_parent(study: Study) -> None:
    study.write(base={"train": {"steps": 100_000}})
    parent = study.start("--no-tracking", *EVERY_STEP)
    wait_for(study.step)
    worker = worker_of(study)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not psutil.pid_exists(worker), seconds=60)


@pytest.mark.slow
@pytest.mark.timeout(600)  # four commands, two of which import mlflow
def test_a_parent_killed_at_every_moment_and_the_same_command_again(
    study: Study, undisturbed: Study
) -> None:
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
    # On a busy machine, the shipper of a killed command still logs, and the one of the last command has given up.
    _, left = psutil.wait_procs(shippers(study), timeout=300)
    assert left == []
    study.h2h("sync", "tiny.yaml")
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
    for _ in range(5):  # on a busy machine, the training can end before the deletion
        parent = study.start("--no-tracking", *EVERY_STEP)
        wait_for(study.step)
        deleted = study.directories()[0]
        shutil.rmtree(deleted, ignore_errors=True)
        output, _ = parent.communicate(timeout=120)
        if parent.returncode:
            break
        shutil.rmtree(study.experiment)
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


SECONDS = 2.0
"""The time limit of a command for its store in these tests."""


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that never answers a request."""
    over = threading.Event()
    with serving(lambda handler: over.wait() and None) as address:
        yield address.replace("//", "//name:secret@")
        over.set()


def shippers(study: Study) -> list[psutil.Process]:
    """Return the shippers of the study."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = [*(process.info["cmdline"] or ()), process.info["cwd"] or ""]
        if "headtohead.tracking.shipper" in words and str(study.folder) in " ".join(words):
            found.append(process)
    return found


def check_run(study: Study, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """Run the study with a store that never answers: the report is written first, and the command ends in time."""
    monkeypatch.setenv("H2H_TRACKING_SECONDS", str(SECONDS))
    monkeypatch.chdir(study.folder)
    messages: list[tuple[float, str]] = []
    api.run("tiny.yaml", workers=1, log=lambda line: messages.append((time.monotonic(), line)))
    ended = time.monotonic()
    times, lines = zip(*messages[-3:], strict=True)
    assert lines[0] == "report: reports/tiny/index.html"
    assert lines[1].startswith(
        f"mlflow: logging to {uri} for at most {SECONDS:.0f} s more; Ctrl-C leaves the rest to "
    )
    assert lines[2].startswith(f"mlflow: not everything was logged to {uri} (")
    assert lines[2].endswith("); nothing is lost, run h2h sync tiny.yaml")
    assert ended - times[0] < shipper.QUIET_SECONDS + SECONDS + 40
    assert shippers(study) == []


@pytest.mark.slow
def test_a_locked_store_and_a_server_that_never_answers_delay_nothing(
    study: Study, monkeypatch: pytest.MonkeyPatch, silent_server: str, store_template: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", silent_server)
    check_run(study, monkeypatch, silent_server.replace("name:secret@", ""))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    database = study.folder / "mlflow.db"
    shutil.copyfile(store_template, database)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        study.write(seeds=3)
        check_run(study, monkeypatch, f"sqlite:///{database}")
    study.h2h("sync", "tiny.yaml")
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "select count(distinct value) from tags where key = 'h2h.run_hash'"
        ).fetchone()
    assert rows == (3,)


@pytest.mark.slow
def test_ctrl_c_while_shipping_ends_the_command(study: Study, silent_server: str) -> None:
    environment = study.environment | {"MLFLOW_TRACKING_URI": silent_server}
    environment["H2H_TRACKING_SECONDS"] = "280"
    with subprocess.Popen(
        study.command("run", "tiny.yaml", "--workers", "1"),
        cwd=study.folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "for at most" in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(120) == 0  # every run is done
    assert time.monotonic() - began < 120
    assert "nothing is lost, run h2h sync tiny.yaml" in rest
    assert shippers(study) == []
