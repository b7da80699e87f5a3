"""A damaged, locked, full, read-only or newer MLflow store: one line, nothing lost, and later every run is logged."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
import yaml

from headtohead import files
from made import kind_table, mounted, read_only

Command = Callable[..., subprocess.CompletedProcess[str]]
MOVE = "move it away and run h2h sync, which logs every run to a new store"


Plant = Callable[[Path], AbstractContextManager[object]]


def _written(change: Callable[[bytes], bytes]) -> Plant:
    def plant(database: Path) -> AbstractContextManager[object]:
        database.write_bytes(change(database.read_bytes()))
        return nullcontext()

    return plant


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode=EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def _locked(database: Path) -> Iterator[None]:
    command = [sys.executable, "-c", LOCK, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.kill()


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
        _written(lambda content: content.replace(b"TABLE alembic_version", b"TABLE \xff\xfeembic_version")),
        MOVE,
    ),
    ("damage", "locked", _locked, "database is locked; no run is lost, run h2h sync when"),
    ("damage", "full", _full, "no run is lost, run h2h sync when the store is available"),
    ("damage", "read-only", lambda file: read_only(file.parent), "Read-only file system"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, h2h_here: Command, cache: Path) -> Path:
    """The folder of a study with a finished run and without a store."""
    folder = tmp_path_factory.mktemp("finished")
    content = {
        "question": "Is anything lost?",
        "base": {
            "data": {"dataset": "toy-grammar", "size": 200},
            "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16},
            "train": {"steps": 4, "batch_tokens": 128},
        },
        "seeds": 1,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    done = h2h_here(folder, "run", "study.yaml", "--no-tracking", "--no-report", H2H_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path, store_template: Path) -> Path:
    """The folder of a study with a finished run and an empty store, ``store/mlflow.db``."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    (folder / "store").mkdir()
    shutil.copyfile(store_template, folder / "store/mlflow.db")
    return folder


def sync(h2h_here: Command, study: Path) -> subprocess.CompletedProcess[str]:
    return h2h_here(study, "sync", MLFLOW_TRACKING_URI=f"sqlite:///{study}/store/mlflow.db")


@kind_table("plant, message", CASES)
def test_a_store_that_cannot_be_used_is_one_line_and_loses_nothing(
    plant: Plant,
    message: str,
    study: Path,
    h2h_here: Command,
    refusal: Callable[[object], str],
    store_template: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL", "mlflow")  # as in a process in which headtohead imports mlflow first
    database = study / "store/mlflow.db"
    with plant(database):
        before = database.read_bytes() if database.exists() else None
        assert message in refusal(sync(h2h_here, study))
        assert (database.read_bytes() if database.exists() else None) == before
    if MOVE in message:
        database.rename(study / "moved.db")
    if not database.exists():
        shutil.copyfile(store_template, database)  # `h2h sync` creates the same store in some seconds
    done = sync(h2h_here, study)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "study: 1 logged, 0 unchanged")


KILLED = """
import os, signal, sys
from pathlib import Path
from headtohead import files
files.replace(Path(sys.argv[1]), lambda path: (path.write_text("half"), os.kill(os.getpid(), signal.SIGKILL)))
"""


def test_leftovers_of_killed_processes_are_removed_by_the_next_command(study: Path, h2h_here: Command) -> None:
    (run,) = (path.parent for path in study.glob("runs/study/*/status.json"))
    for name in ("status.json", "heads.json"):
        assert subprocess.run([sys.executable, "-c", KILLED, run / name], check=False).returncode < 0
    assert len(list(run.glob(".*.tmp"))) == 2
    upload = study / "runs/study/.loggers/mlflow-files/images/maps.png"
    upload.parent.mkdir(parents=True)
    upload.write_text("an upload")

    def write(temporary: Path) -> None:
        """Run the command while this process writes a file."""
        temporary.write_text("{}")
        assert sync(h2h_here, study).returncode == 0

    files.replace(run / "heads.json", write)
    assert (run / "heads.json").is_file()
    assert list(run.glob(".*.tmp")) == []
    assert not (study / "runs/study/.loggers/mlflow-files").exists()
