"""A single module creates and opens stores: completely or not at all, and every error is one line."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead_mlflow.store import open_store

FOUR_AT_ONCE = """
import os, sys
from headtohead_mlflow.store import load_mlflow
load_mlflow()
import mlflow.store.tracking.sqlalchemy_store
from headtohead_mlflow.store import open_store
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        store = open_store(sys.argv[1], create=True)
        store.experiment("shared", "a study")
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(sum(code != 0 for code in codes))
"""


@pytest.mark.slow
def test_four_processes_can_create_the_same_store_at_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    failed = subprocess.run([sys.executable, "-c", FOUR_AT_ONCE, uri], check=False)
    assert failed.returncode == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {
        "mlflow.db",
        "mlflow.db-wal",
        "mlflow.db-shm",
        "mlflow.db.lock",
    }
    names = [
        experiment.name for experiment in open_store(uri, create=False).client.search_experiments()
    ]
    assert sorted(names) == ["Default", "shared"]


def test_every_experiment_keeps_its_artifacts_beside_the_store(
    tmp_path: Path, store_uri: str
) -> None:
    store = open_store(store_uri, create=False)
    identifier = store.experiment("a study", "id")
    location = store.client.get_experiment(identifier).artifact_location
    assert location == (tmp_path / "mlruns-artifacts/a study").as_uri()


def test_an_experiment_that_another_process_creates_at_the_same_time_is_used(
    store_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_uri, create=False)
    identifier, find = store.experiment("shared", "id"), store.client.get_experiment_by_name
    answers = [None, find("shared")]
    monkeypatch.setattr(store.client, "get_experiment_by_name", lambda name: answers.pop(0))
    assert store.experiment("shared", "id") == identifier


@pytest.mark.parametrize("revision", ["ffffffffffff", "451aebb31d03"])
def test_a_store_of_another_mlflow_is_refused_in_one_line_and_not_changed(
    store_uri: str, revision: str
) -> None:
    path = _path(store_uri)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(HeadToHeadError, match=f"'{revision}'.*mlflow db upgrade") as caught:
        open_store(store_uri, create=True)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_missing_store_is_not_created_by_readers(tmp_path: Path) -> None:
    with pytest.raises(HeadToHeadError, match="there is no MLflow store"):
        open_store(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HeadToHeadError, match=r"cannot use the MLflow store .*no run is lost"):
        open_store(f"sqlite:///{tmp_path}/file/mlflow.db", create=True)


@pytest.mark.slow
def test_a_deleted_experiment_is_not_written_to(store_uri: str) -> None:
    store = open_store(store_uri, create=False)
    store.client.delete_experiment(store.experiment("gone", "id"))
    with pytest.raises(HeadToHeadError, match="restore it with: ") as caught:
        store.experiment("gone", "id")
    command = str(caught.value).partition("restore it with: ")[2]
    environment = {
        name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert store.experiment("gone", "id")


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///"))
