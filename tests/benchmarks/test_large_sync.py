"""A sync that is killed and repeated ships every run exactly once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from headtohead.storage.records import ResultsRecord
from headtohead.tracking import store
from headtohead.tracking.runs import Step, TrackedStudy
from headtohead.tracking.shipping import ship

pytestmark = pytest.mark.slow

MakeStudy = Callable[..., Path]
RUNS = 24


def test_a_killed_sync_continues_with_the_missing_runs(
    make_study: MakeStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_study(tmp_path, 3, 4)
    folder, database = tmp_path / "runs" / "large", tmp_path / "mlflow.db"
    uri = f"sqlite:///{database}"
    command = [sys.executable, "-m", "headtohead.cli", "sync", "large", "--uri", uri]
    killed = subprocess.Popen(command, cwd=file.parent, env=os.environ | {"H2H_RUNS": "runs"})
    while killed.poll() is None and _shipped(database) < RUNS // 4:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, "it ended before it could be killed"
    before = _shipped(database)
    assert RUNS // 4 <= before < RUNS

    monkeypatch.setattr(store, "PAGE", 5)
    report = ship(folder, uri)
    assert (report.shipped, report.unchanged) == (RUNS - before, before)
    assert report.failures == []
    assert ship(folder, uri).shipped == 0

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("large")
    assert experiment is not None
    found = {run.data.tags["h2h.run_hash"]: run for run in client.search_runs([experiment.experiment_id])}
    study = TrackedStudy.read(folder)
    assert len(client.search_runs([experiment.experiment_id])) == len(found) == RUNS
    assert set(found) == {run.run_hash for run in study.runs()}
    assert len(client.search_logged_models([experiment.experiment_id], max_results=200)) == RUNS
    for run in study.runs():
        _assert_whole(client, found[run.run_hash], run.steps(), run.results)


def _assert_whole(client: MlflowClient, run: Run, steps: list[Step], results: ResultsRecord | None) -> None:
    assert run.info.status == "FINISHED"
    assert results is not None
    for name, value in results.metrics.items():
        assert run.data.metrics[name] == value
    history_in_store = client.get_metric_history(run.info.run_id, "valid/loss")
    assert sorted((metric.step, metric.value) for metric in history_in_store) == [
        (step, metrics["valid/loss"]) for step, _, metrics in steps if "valid/loss" in metrics
    ]


def _shipped(database: Path) -> int:
    """Return the number of completely shipped runs, read from the database without MLflow."""
    if not database.exists():
        return 0
    query = (
        "SELECT count(*) FROM runs JOIN tags USING (run_uuid) "
        "WHERE tags.key = 'h2h.shipped' AND runs.status = 'FINISHED'"
    )
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute(query).fetchone()[0])
