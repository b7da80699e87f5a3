"""The shipper beside training: it follows new metrics, backs off, survives kills, and loses nothing."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from headtohead.errors import HeadToHeadError
from headtohead.tracking import shipper as room
from headtohead.tracking import store
from headtohead.tracking.rundirs import TrackedStudy
from headtohead.tracking.shipper import StudyShipper
from headtohead.tracking.shipping import ship

MakeExperiment = Callable[..., Path]
ChangeJson = Callable[..., None]
AXES = {"positional": ["rotary", "none"]}


@pytest.mark.slow
def test_a_shipper_killed_and_restarted_ships_every_run_once(make_experiment: MakeExperiment, store_uri: str) -> None:
    folder = make_experiment(seeds=4, axes=AXES)
    first = _start(folder, store_uri, os.getpid())
    _wait(lambda: _count(store_uri) > 0)
    first.send_signal(signal.SIGKILL)
    first.wait()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    # Its parent has ended: the shipper ships the remaining runs and exits.
    assert _start(folder, store_uri, gone.pid).wait(120) == 0
    runs = _runs(store_uri)
    assert len(runs) == len({run.data.tags["h2h.run_hash"] for run in runs}) == 8
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert (folder / "shipper.log").read_text().count("shipping") == 2


@pytest.mark.slow
def test_finished_runs_are_shipped_while_others_train(
    make_experiment: MakeExperiment, store_uri: str, change_json: ChangeJson
) -> None:
    folder = make_experiment(seeds=1, axes=AXES, states={(1, 1): "RUNNING"})
    shipper = StudyShipper(folder, store_uri)
    shipper.poll()
    assert [run.info.status for run in _runs(store_uri)] == ["FINISHED"]
    running = TrackedStudy.read(folder).runs()[1]
    change_json(running.path / "status.json", state="DIVERGED", ended="2026-01-05T09:00:42Z")
    shipper.poll()
    assert sorted(run.info.status for run in _runs(store_uri)) == ["FAILED", "FINISHED"]


def test_the_curve_of_a_running_run_is_in_the_store_after_some_seconds(
    make_experiment: MakeExperiment, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LIVE_SECONDS", 0.0)
    monkeypatch.setattr(room, "LIVE_SHARE", 1e9)
    folder = make_experiment(seeds=1, axes={"positional": ["none"]}, states={(0, 1): "RUNNING"})
    shipper = StudyShipper(folder, store_uri, live_seconds=0.0)
    shipper.poll()
    (run,) = _runs(store_uri)
    assert run.info.status == "RUNNING"
    with (TrackedStudy.read(folder).runs()[0].path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 155, "epoch": 1, "time": 1, "values": {"train/loss": 0.125}}\n')
    shipper.poll()
    assert _runs(store_uri)[0].data.metrics["train/loss"] == 0.125


@pytest.mark.slow
def test_without_new_metrics_the_store_is_not_opened(
    make_experiment: MakeExperiment, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipper = StudyShipper(make_experiment(seeds=1, axes=AXES), store_uri)
    shipper.poll()
    monkeypatch.setattr(room, "opened", lambda uri: pytest.fail("the store was opened"))
    shipper.poll()


def test_the_delay_doubles_while_the_store_is_down(make_experiment: MakeExperiment, down: str) -> None:
    shipper = StudyShipper(make_experiment(seeds=1, axes=AXES), down)
    pauses = []
    for _ in range(2):
        shipper.next_try = 0.0
        shipper.poll()
        pauses.append(shipper.pause)
    assert pauses == [5.0, 10.0]
    assert shipper.next_try > time.monotonic() + 8


def test_a_server_down_for_the_whole_study_loses_nothing(
    make_experiment: MakeExperiment,
    store_uri: str,
    down: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(room, "LAST_ATTEMPTS", 2)
    monkeypatch.setattr(logging.getLogger("headtohead.shipper"), "propagate", True)
    folder = make_experiment(seeds=2, axes=AXES)
    (folder / ".shipping-done").touch()
    assert not room.follow(StudyShipper(folder, down), os.getpid())
    assert "Connection refused; no run is lost" in caplog.text
    assert ship(folder, store_uri).shipped == 4


def test_it_polls_until_the_marker_file_exists(
    make_experiment: MakeExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_experiment(seeds=1, axes=AXES)
    polls: list[int] = []

    def poll(shipper: StudyShipper) -> None:
        polls.append(len(polls))
        if len(polls) == 3:
            (folder / ".shipping-done").touch()

    monkeypatch.setattr(room, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(StudyShipper, "poll", poll)
    monkeypatch.setattr(StudyShipper, "finish", lambda shipper: len(polls) == 3)
    assert room.follow(StudyShipper(folder, "sqlite:///unused.db"), os.getpid())


def test_a_second_shipper_waits_for_the_first(store_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.1)
    errors: list[str] = []

    def try_it() -> None:
        try:
            with store.locked(store_uri):
                errors.append("it went in")
        except HeadToHeadError as error:
            errors.append(str(error))

    with store.locked(store_uri):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert "another process has locked the MLflow store" in errors[0]


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that does not run; a single attempt keeps the test short."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def _start(folder: Path, uri: str, parent: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headtohead.tracking.shipper", str(folder)]
    return subprocess.Popen([*command, "--uri", uri, "--parent", str(parent)])


def _runs(uri: str) -> list[Run]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    return list(client.search_runs([experiment.experiment_id]))


def _count(uri: str) -> int:
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as connection:
        query = "SELECT count(*) FROM tags WHERE key = 'h2h.shipped'"
        return int(connection.execute(query).fetchone()[0])


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240  # importing mlflow takes long on a busy machine
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
