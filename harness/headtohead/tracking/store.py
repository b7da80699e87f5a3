"""Creating and opening an MLflow store under a lock.

A SQLite store is created under a temporary name and renamed when it is complete. After concurrent starts, a full disk
or a kill there is either a complete store or none. The database uses WAL mode, so that the server can read while a
shipper writes.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from filelock import FileLock, Timeout

from headtohead import files
from headtohead.config.project import URI_VARIABLE
from headtohead.config.project import default_uri as default_uri
from headtohead.config.project import readable as readable
from headtohead.errors import HeadToHeadError
from headtohead.tracking import environment

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

ARTIFACTS = "mlruns-artifacts"
LOCK_SECONDS = 300.0
INCOMPLETE = ".new-"
"""Separates the name of a store and the id of the process that creates it, in the names of temporary files."""

UNAVAILABLE = (
    "database or disk is full",
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "attempt to write a readonly database",
    "unable to open database file",
    "database is locked",
    "disk I/O error",
    "Too many open files",
    "Connection refused",
    "Name or service not known",
    "Read timed out",
)
DAMAGE = ("database disk image is malformed", "file is not a database", "malformed database schema")
MOVE_AWAY = "move it away and run h2h sync, which logs every run to a new store"


PAGE = 250
"""Number of runs per search request."""


@dataclass(frozen=True)
class Store:
    """An open store; ``database`` is the file of a SQLite store, else None."""

    uri: str
    client: MlflowClient
    database: Path | None

    @property
    def uri_digest(self) -> str:
        """A short hash of the URI, which may contain a password."""
        return uri_digest(self.uri)

    @property
    def _variable(self) -> str:
        """The prefix that makes an mlflow command use this store."""
        if os.environ.get(URI_VARIABLE) == self.uri:
            return ""
        return f"{URI_VARIABLE}={shlex.quote(readable(self.uri))} "

    def experiment(self, name: str) -> str:
        """Return the id of the MLflow experiment of that name; create it if it is missing.

        Raises:
            HeadToHeadError: If the experiment was deleted in MLflow.
        """
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            return self._create_experiment(name)
        if experiment.lifecycle_stage != "active":
            raise HeadToHeadError(
                f"MLflow experiment '{name}' is deleted in {readable(self.uri)}; "
                f"restore it with: {self._variable}mlflow experiments restore -x "
                f"{experiment.experiment_id}"
            )
        return str(experiment.experiment_id)

    @contextmanager
    def artifacts(self, location: str, upload: Callable[[str], object]) -> Iterator[Path]:
        """Yield a folder for artifacts; at the end of the block its content is stored at ``location``.

        A local location is written directly, which saves a quarter of the cost of a run. For any other location,
        ``upload`` is called once with a temporary folder.
        """
        if location.startswith("file:"):
            folder = Path(unquote(urlparse(location).path))
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
            return
        with files.scratch_folder() as folder:
            yield folder
            upload(str(folder))

    def _create_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        location = None
        if self.database is not None:
            location = (self.database.parent / ARTIFACTS / name.replace("/", "-")).as_uri()
        try:
            return str(self.client.create_experiment(name, artifact_location=location))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return self.experiment(name)

    def analyze(self) -> None:
        """Update SQLite's query statistics, without which histories and ordering are 50 times slower."""
        if self.database is not None:
            with closing(sqlite3.connect(self.database, timeout=20)) as connection:
                connection.executescript("PRAGMA analysis_limit=1000; ANALYZE;")


def all_runs(store: Store, experiment_id: str, query: str = "", *, newest_first: bool = False) -> Iterator[Run]:
    """Yield all active runs of an MLflow experiment in the order of their starts, page by page.

    An MLflow run takes about 150 kB of memory, too much for 10,000 runs at once.
    """
    order = [f"attributes.start_time {'DESC' if newest_first else 'ASC'}"]
    token: str | None = None
    while True:
        page = store.client.search_runs([experiment_id], query, max_results=PAGE, page_token=token, order_by=order)
        yield from page
        token = page.token
        if not token:
            return


def database_of(uri: str) -> Path | None:
    """Return the file of a SQLite store, or None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def uri_digest(uri: str) -> str:
    """Return a short hash of a store's URI."""
    return hashlib.sha256(uri.encode()).hexdigest()[:12]


@contextmanager
def locked(uri: str) -> Iterator[None]:
    """Hold the store's lock, so that only a single shipper writes to it.

    Raises:
        HeadToHeadError: If the folder of the lock cannot be written, or another process holds the lock too long.
    """
    lock = _lock(_lock_path(uri))
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        raise HeadToHeadError(
            f"another process has locked the MLflow store {readable(uri)} for {LOCK_SECONDS:.0f} s; "
            "run h2h sync when it has ended"
        ) from error
    except OSError as error:
        raise _unusable(uri, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def one_line(uri: str) -> Iterator[None]:
    """Convert errors of a store, its disk or its server into HeadToHeadError."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise _unusable(uri, error) from error


def open_store(uri: str, *, create: bool) -> Store:
    """Open a store and check it; with ``create``, create a missing SQLite store.

    Raises:
        HeadToHeadError: If mlflow is not installed, or the store is missing, unreachable, not writable, or of another
            MLflow version. Then nothing is changed.
    """
    environment.load()
    database = database_of(uri)
    with one_line(uri):
        if database is not None:
            _prepare(uri, database, create)
        else:
            _refuse_folders(uri)
        return Store(uri, _client(uri), database)


def _client(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    _register_pragmas()
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    # The client connects at its first call, which is made here so that the caller converts its errors.
    client.search_experiments(max_results=1)
    return client


def _prepare(uri: str, database: Path, create: bool) -> None:
    if not create and not database.exists():
        raise HeadToHeadError(f"there is no MLflow store at {database}; run h2h sync first")
    if create and (not database.exists() or _leftovers(database)):
        database.parent.mkdir(parents=True, exist_ok=True)
        with locked(uri):
            _remove_leftovers(database)
            if not database.exists():
                _create(database)
    _check_schema(database)


def _leftovers(database: Path) -> list[Path]:
    """Return the files of stores that were not completed; only the holder of the store's lock creates a store."""
    return list(database.parent.glob(f"{glob.escape(database.name)}{INCOMPLETE}[0-9]*"))


def _remove_leftovers(database: Path) -> None:
    for path in _leftovers(database):
        path.unlink(missing_ok=True)


def _create(database: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    build: Callable[[str, str], Any] = SqlAlchemyStore
    fresh = database.with_name(f"{database.name}{INCOMPLETE}{os.getpid()}")
    try:
        # The pragma of `_register_pragmas` is not needed here, since the file has no data yet.
        store = build(f"sqlite:///{fresh}", (database.parent / ARTIFACTS).as_uri())
        store.engine.dispose()
        with closing(sqlite3.connect(fresh)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(database)
    finally:
        _remove_leftovers(database)


def _check_schema(database: Path) -> None:
    import mlflow

    revision = _schema_revision(database)
    known, newest = _known_revisions()
    if revision == newest:
        return
    if revision in known:
        raise HeadToHeadError(
            f"MLflow store {database} was written by an older MLflow; make a copy, then run: "
            f"mlflow db upgrade sqlite:///{database}"
        )
    raise HeadToHeadError(
        f"MLflow store {database} has schema '{revision}', unknown to mlflow {mlflow.__version__}; "
        f"install a newer mlflow, or set {URI_VARIABLE} to another store"
    )


def _schema_revision(database: Path) -> str | None:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if _known(str(error)):
                raise
            raise HeadToHeadError(
                f"{database} is not an MLflow store ({error}); {MOVE_AWAY}, or set {URI_VARIABLE} to another store"
            ) from error
    return row[0] if row else None


@functools.cache
def _known_revisions() -> tuple[frozenset[str], str | None]:
    import mlflow
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    migrations = Path(mlflow.__file__).parent / "store/db_migrations"
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    revisions = frozenset(revision.revision for revision in script.walk_revisions())
    return revisions, script.get_current_head()


@functools.cache
def _register_pragmas() -> None:
    from sqlalchemy import Engine, event

    @event.listens_for(Engine, "connect")
    def fast_and_safe(connection: Any, _record: Any) -> None:
        # With WAL, NORMAL loses at most the last transactions on a power failure; h2h sync replays them.
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=NORMAL")


def _refuse_folders(uri: str) -> None:
    scheme = uri.partition("://")[0]
    if "://" not in uri or scheme == "file":
        raise HeadToHeadError(
            f"MLflow's file store '{uri}' is not supported; "
            f"set {URI_VARIABLE} to sqlite:///PATH or to a server's http://HOST:PORT"
        )


@functools.cache
def _lock(path: Path) -> FileLock:
    return FileLock(path)


def _lock_path(uri: str) -> Path:
    database = database_of(uri)
    if database is not None:
        return database.with_name(f"{database.name}.lock")
    user = getattr(os, "getuid", lambda: 0)()
    return Path(tempfile.gettempdir()) / f"headtohead-{user}-{uri_digest(uri)}.lock"


def _unusable(uri: str, error: Exception) -> HeadToHeadError:
    reason = " ".join(str(error).split()) or type(error).__name__
    if damage := next((text for text in DAMAGE if text in reason), None):
        return HeadToHeadError(f"MLflow store {readable(uri)} is damaged ({damage}); {MOVE_AWAY}")
    return HeadToHeadError(
        f"cannot use the MLflow store {readable(uri)}: {_known(reason) or reason[:200]}; "
        "no run is lost, run h2h sync when the store is available"
    )


def _known(reason: str) -> str | None:
    """Return the known cause that a message of a store that is not available contains."""
    return next((text for text in UNAVAILABLE if text in reason), None)
