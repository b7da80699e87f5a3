"""A damaged, locked, full, read-only or newer MLflow store: one line, nothing lost, and later every run is logged."""

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from headtohead import files
from made import error_line, kind_table, mounted, read_only
from made.study import Completed, Study

MOVE = "move it away and run h2h sync, which logs every run to a new store"


Plant = Callable[[Path], AbstractContextManager[object]]


def _written(change: Callable[[bytes], bytes]) -> Plant:
    def plant(database: Path) -> AbstractContextManager[object]:
        database.write_bytes(change(database.read_bytes()))
        return nullcontext()

    return plant


@contextmanager
def _locked(database: Path) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def _full(database: Path) -> Iterator[None]:
    """Have the store on a disk that is too small for a store."""
    database.unlink()
    with mounted(database.parent, "-t", "tmpfs", "-o", "size=200k", "tmpfs"):
        yield


NOISE = random.Random(1).randbytes(50_000)
CASES = (
    ("damage", "empty", _written(lambda content: b""), f"is not an MLflow store; {MOVE}"),
    (
        "damage",
        "pages",
        _written(lambda content: content[:9_000] + NOISE + content[-9_000:]),
        f"(database disk image is malformed); {MOVE}",
    ),
    (
        "damage",
        "encoding",
        _written(
            lambda content: content.replace(
                b"TABLE alembic_version", b"TABLE \xff\xfeembic_version"
            )
        ),
        MOVE,
    ),
    ("damage", "locked", _locked, "database is locked; no run is lost, run h2h sync when"),
    ("damage", "full", _full, "no run is lost, run h2h sync when the store is available"),
    ("damage", "read-only", lambda file: read_only(file.parent), "Read-only file system"),
)


@pytest.fixture
def study(small_study: Study, tmp_path: Path, store_template: Path) -> Study:
    """The study with an empty store, ``store/mlflow.db``."""
    made = replace(small_study, folder=tmp_path / "project")
    shutil.copytree(small_study.folder, made.folder)
    (made.folder / "store").mkdir()
    shutil.copyfile(store_template, made.folder / "store/mlflow.db")
    return made


def sync(study: Study) -> Completed:
    return study.here(
        study.folder, "sync", MLFLOW_TRACKING_URI=f"sqlite:///{study.folder}/store/mlflow.db"
    )


@kind_table("plant, message", CASES)
def test_a_store_that_cannot_be_used_is_one_line_and_loses_nothing(
    plant: Plant, message: str, study: Study, store_template: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(
        "CRITICAL", "mlflow"
    )  # as in a process in which headtohead imports mlflow first
    database = study.folder / "store/mlflow.db"
    with plant(database):
        before = database.read_bytes() if database.exists() else None
        assert message in error_line(sync(study))
        assert (database.read_bytes() if database.exists() else None) == before
    if MOVE in message:
        database.rename(study.folder / "moved.db")
    if not database.exists():
        shutil.copyfile(
            store_template, database
        )  # `h2h sync` creates the same store in some seconds
    done = sync(study)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "small: 4 logged, 0 unchanged")


KILLED = """
import os, signal, sys
from pathlib import Path
from headtohead import files
files.replace(Path(sys.argv[1]), lambda path: (path.write_text("half"), os.kill(os.getpid(), signal.SIGKILL)))
"""


def test_leftovers_of_killed_processes_are_removed_by_the_next_command(study: Study) -> None:
    run = study.directories()[0]
    for name in ("status.json", "heads.json"):
        assert (
            subprocess.run([sys.executable, "-c", KILLED, run / name], check=False).returncode < 0
        )
    assert len(list(run.glob(".*.tmp"))) == 2
    upload = study.experiment / ".loggers/mlflow-files/images/maps.png"
    upload.parent.mkdir(parents=True)
    upload.write_text("an upload")

    def write(temporary: Path) -> None:
        """Run the command while this process writes a file."""
        temporary.write_text("{}")
        assert sync(study).returncode == 0

    files.replace(run / "heads.json", write)
    assert (run / "heads.json").is_file()
    assert list(run.glob(".*.tmp")) == []
    assert not (study.experiment / ".loggers/mlflow-files").exists()
