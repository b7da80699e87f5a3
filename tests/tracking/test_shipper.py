"""The shipper beside training follows new metrics, backs off, loses nothing, and reads directories of killed runs."""

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Run

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.tracking import shipper as process
from headtohead.tracking import shipping
from headtohead.tracking.shipping import Shipper, ship
from headtohead.tracking.study import InUseError, Step, TrackedRun, TrackedStudy
from made import free_port
from made.fake_study import edit, record_checksums
from made.study import wait_for

MakeExperiment = Callable[..., Path]
AXES = {"positional": ["rotary", "none"]}
ENDED = threading.Event()
ENDED.set()


SHIP_AT_THE_SAME_TIME = """
import os, sys
from pathlib import Path
from headtohead_mlflow.store import load_mlflow
load_mlflow()
import mlflow.store.tracking.sqlalchemy_store
from headtohead.tracking.shipping import ship

uri, *folders = sys.argv[1:]
for folder in folders:
    if os.fork() == 0:
        os._exit(not ship(Path(folder), uri).complete)
sys.exit(any(os.wait()[1] for _ in folders))
"""
"""A process for each study; they find everything imported, and so begin together."""


@pytest.mark.slow
def test_studies_are_shipped_to_one_store_at_the_same_time(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folders = [make_experiment(name=name, axes=AXES) for name in ("one", "two", "three")]
    subprocess.run([sys.executable, "-c", SHIP_AT_THE_SAME_TIME, store_uri, *folders], check=True)
    assert [ship(folder, store_uri).unchanged for folder in folders] == [2, 2, 2]


@pytest.mark.slow
def test_a_second_shipper_of_a_study_waits_for_the_first(
    make_experiment: MakeExperiment, store_uri: str
) -> None:
    folder, ended = make_experiment(seeds=(1, 2), axes=AXES), threading.Event()
    with ThreadPoolExecutor() as pool:
        both = [
            pool.submit(process.follow, Shipper(folder, uri=store_uri), ended) for _ in range(2)
        ]
        wait_for(lambda: len(_runs(store_uri)) == 4)
        ended.set()
        assert [shipper.result() for shipper in both] == [True, True]
    assert len(_runs(store_uri)) == 4


def test_runs_are_shipped_while_others_train(
    make_experiment: MakeExperiment, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has ended is shipped at the next poll, the curve of an active run after some seconds."""
    folder = make_experiment(axes=AXES, states={("none", 1): "RUNNING"})
    shipper, running = Shipper(folder, uri=store_uri), TrackedStudy.read(folder).runs()[1]
    shipper.next_live = math.inf
    _poll(shipper)
    assert [run.info.status for run in _runs(store_uri)] == ["FINISHED"]
    shipper.next_live = 0.0
    _poll(shipper)
    live = {run.info.status: run for run in _runs(store_uri)}["RUNNING"]
    assert live.data.metrics["train/loss"] > 0
    monkeypatch.setattr(
        shipping, "LIVE_SHARE", 1e-4
    )  # a pass that takes 100 times the allowed share
    with (running.path / "metrics.jsonl").open("a") as file:
        for step, loss in ((305, 0.125), (310, 0.5)):
            file.write(
                f'{{"step": {step}, "epoch": 1, "time": {step}, "values": {{"train/loss": {loss}}}}}\n'
            )
    shipper.next_live = 0.0
    _poll(shipper)
    assert shipper.next_live > time.monotonic() + 60
    assert {run.info.status: run for run in _runs(store_uri)}["RUNNING"].data.metrics[
        "train/loss"
    ] == 0.5
    # The next attempt begins at step 0, with other values.
    lines = (running.path / "metrics.jsonl").read_text().splitlines(keepends=True)[:2]
    (running.path / "metrics.jsonl").write_text(
        "".join(lines).replace('"time": ', '"time": 1').replace("loss", "lose")
    )
    edit(running.path / "status.json", attempt=2)
    shipper.next_live = 0.0
    _poll(shipper)
    assert (
        "train/lose" in {run.info.status: run for run in _runs(store_uri)}["RUNNING"].data.metrics
    )
    edit(running.path / "status.json", state="DIVERGED", ended="2026-01-05T09:00:42Z")
    _poll(shipper)
    assert sorted(run.info.status for run in _runs(store_uri)) == ["FAILED", "FINISHED"]
    edit(running.path / "status.json", attempt=3)  # as after --retry
    _poll(shipper)
    assert sorted(run.data.tags["h2h.attempt"] for run in _runs(store_uri)) == ["1", "3"]
    monkeypatch.setattr(
        shipper, "ship", lambda *arguments, **options: pytest.fail("the store was opened")
    )
    _poll(shipper)


def test_the_delay_doubles_while_the_store_is_down(
    make_experiment: MakeExperiment, down: str
) -> None:
    shipper = Shipper(make_experiment(axes=AXES), uri=down)
    pauses = []
    for _ in range(2):
        _poll(shipper)
        pauses.append(shipper.pause)
    assert pauses == [5.0, 10.0]
    assert shipper.next_poll > time.monotonic() + 8


def test_a_server_down_for_the_whole_study_loses_nothing(
    make_experiment: MakeExperiment, store_uri: str, down: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_experiment(seeds=(1, 2), axes=AXES)
    monkeypatch.setenv("H2H_TRACKING_SECONDS", "0")
    with pytest.raises(HeadToHeadError, match=r"Connection refused.*; no run is lost"):
        process.follow(Shipper(folder, uri=down), ENDED)
    assert ship(folder, store_uri).shipped == 4


def test_the_last_pass_is_repeated_while_the_parent_waits(
    make_experiment: MakeExperiment,
    store_uri: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, elsewhere = tmp_path / "mlflow.db", tmp_path / "elsewhere.db"
    store.rename(elsewhere)
    store.mkdir()  # in the way
    attempts: list[float] = []

    def pause(seconds: float) -> None:
        """Clear the way at the first pause, instead of waiting."""
        attempts.append(seconds)
        store.rmdir()
        elsewhere.rename(store)

    monkeypatch.setattr(process.time, "sleep", pause)
    assert process.follow(Shipper(make_experiment(axes=AXES), uri=store_uri), ENDED)
    assert attempts == [process.POLL_SECONDS]
    assert len(_runs(store_uri)) == 2


def test_the_last_pass_of_another_process_is_waited_for(
    make_experiment: MakeExperiment, store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_experiment(axes=AXES)
    loggers = folder / ".loggers"
    loggers.mkdir()
    last_pass = FileLock(loggers / "mlflow.lock", thread_local=False)
    last_pass.acquire()
    monkeypatch.setenv("H2H_TRACKING_SECONDS", "0.1")
    with pytest.raises(InUseError):
        process.follow(Shipper(folder, uri=store_uri), ENDED)
    monkeypatch.setenv("H2H_TRACKING_SECONDS", "60")
    threading.Timer(0.2, last_pass.release).start()
    assert process.follow(Shipper(folder, uri=store_uri), ENDED)


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that does not run; a single attempt keeps the test short."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return f"http://127.0.0.1:{free_port()}"


def _poll(shipper: Shipper) -> None:
    shipper.next_poll = 0.0
    shipper.poll()


def _runs(uri: str) -> list[Run]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


@pytest.fixture
def run(make_experiment: Callable[..., Path]) -> TrackedRun:
    return TrackedStudy.read(make_experiment(axes={"positional": ["rotary"]})).runs()[0]


def test_the_changed_history_of_a_finished_run_is_an_error(run: TrackedRun) -> None:
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text().replace('"train/loss": ', '"train/loss": 1', 1))
    with pytest.raises(HeadToHeadError, match=r"metrics\.jsonl' is damaged"):
        run.steps()


def test_repeated_steps_keep_their_first_time_and_truncated_lines_hide_nothing(
    run: TrackedRun,
) -> None:
    before = run.steps()
    lines = [
        {"step": step, "time": time, "values": {"x": value}}
        for step, time, value in [(920, 5.0, 1.0), (910, 4.0, 0.5), (920, 9.0, 2.0)]
    ]
    for part in (lines[:2], lines[2:]):
        files.append_lines(run.path / "metrics.jsonl", part)
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 930, "time": 1, "val')
    record_checksums(run.path)
    assert run.steps() == [*before, Step(910, 4.0, {"x": 0.5}), Step(920, 5.0, {"x": 2.0})]


def test_the_content_hash_depends_on_content_alone(run: TrackedRun) -> None:
    hashes = [run.content_hash()]
    for path in run.path.rglob("*.json*"):
        path.write_bytes(path.read_bytes())
    assert run.content_hash() == hashes[0]
    for name in ("status.json", "run.json", "metrics.jsonl"):
        (run.path / name).write_text((run.path / name).read_text() + "\n")
        hashes.append(run.content_hash())
    (run.path / "heads.json").write_text("{}")
    record_checksums(run.path)
    assert len({*hashes, run.content_hash()}) == 5
