"""Import of mlflow, and creating and opening of an MLflow store.

A SQLite store is created in a temporary folder and written atomically: after concurrent starts, a full disk or a kill
there is either a complete store or none. In its WAL mode, the server can read while a shipper writes.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.plugin import DeniedError
from headtohead_mlflow.address import URI_VARIABLE, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # With MLflow's defaults, a call blocks for four minutes if the server is down.
    RETRIES: "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow logs a traceback before it raises; the exception suffices.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}
ARTIFACTS = "mlruns-artifacts"
ID_TAG = "h2h.study_id"
"""Tag of every MLflow experiment of headtohead: the id of its study, or `INDEX_OWNER`."""

INDEX_OWNER = "index"
LOCK_SECONDS = 300.0

DAMAGE = ("database disk image is malformed", "file is not a database", "malformed database schema")
DENIED = ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED")
REFUSED = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
MOVE_AWAY = "move it away and run h2h sync, which logs every run to a new store"
PAGE = 250
"""Number of runs per search request."""


@dataclass(frozen=True)
class Store:
    """An open store; ``database`` is the file of a SQLite store, else None."""

    uri: str
    client: MlflowClient
    database: Path | None

    def experiment(self, name: str, owner: str, database: Path | None = None) -> str:
        """Return the id of an MLflow experiment; create it with the tag of its owner if it is missing.

        Args:
            name: The name of the MLflow experiment.
            owner: The id of the study to which the MLflow experiment belongs, or `INDEX_OWNER`.
            database: The database of the study's project. Its experiments belong to the study of their name, even if
                the runs folder with the id of the study was deleted.

        Raises:
            DeniedError: If the MLflow experiment exists and was not created by headtohead, or has another owner.
            HeadToHeadError: If the MLflow experiment is deleted.
        """
        experiment = self._find_or_create(name, owner)
        owner_of_experiment = experiment.tags.get(ID_TAG)
        if owner_of_experiment is None:
            raise self._denied(name, "was not created by headtohead")
        if owner_of_experiment != owner and self.database != database:
            raise self._denied(name, "has the runs of another project")
        if experiment.lifecycle_stage != "active":
            uri = without_password(self.uri)
            restore = f"mlflow experiments restore -x {experiment.experiment_id}"
            raise HeadToHeadError(
                f"MLflow experiment '{name}' is deleted in {uri}; restore it with: "
                f"{URI_VARIABLE}='{uri}' {restore}"
            )
        if owner_of_experiment != owner:
            self.client.set_experiment_tag(experiment.experiment_id, ID_TAG, owner)
        return str(experiment.experiment_id)

    def _find_or_create(self, name: str, owner: str) -> Experiment:
        """Return the MLflow experiment of a name; a new one has the tag of its owner from the start."""
        from mlflow.exceptions import MlflowException

        experiment = self.client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment
        folder = self.database and self.database.parent / ARTIFACTS / name.replace("/", "-")
        location = folder.as_uri() if folder else None
        try:
            return self.client.get_experiment(
                self.client.create_experiment(name, location, {ID_TAG: owner})
            )
        except MlflowException:  # another process may have created it in the meantime
            experiment = self.client.get_experiment_by_name(name)
            if experiment is None:
                raise
            return experiment

    def _denied(self, name: str, reason: str) -> DeniedError:
        return DeniedError(
            f"MLflow experiment '{name}' in {without_password(self.uri)} {reason}; "
            "set H2H_MLFLOW_FOLDER to a name for this project, which is put before the names of experiments, "
            f"or {URI_VARIABLE} to another store"
        )

    def runs(
        self, experiment_id: str, query: str = "", *, newest_first: bool = False
    ) -> Iterator[Run]:
        """Yield the active runs of an MLflow experiment that ``query`` selects, by default all, the oldest first.

        ``query`` is a filter of MLflow. Runs are requested in pages while the iterator advances, because an MLflow run
        takes about 150 kB of memory, too much for 10,000 runs at once.
        """
        direction = "DESC" if newest_first else "ASC"
        order = [f"attributes.start_time {direction}"]
        token = None
        while True:
            page = self.client.search_runs(
                [experiment_id], query, max_results=PAGE, page_token=token, order_by=order
            )
            yield from page
            token = page.token
            if not token:
                return

    def create_run(
        self, experiment_id: str, start_time: int | None, name: str, tags: Mapping[str, str]
    ) -> Run:
        """Create a run without repeating the request: a server whose answer was lost may have created the run."""
        before = os.environ[RETRIES]
        os.environ[RETRIES] = "0"
        try:
            return self.client.create_run(experiment_id, start_time, dict(tags), name)
        finally:
            os.environ[RETRIES] = before

    def analyze(self) -> None:
        """Update SQLite's query statistics, without which histories and ordering are 50 times slower."""
        if self.database is not None:
            address = f"{self.database.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, timeout=20)) as connection:
                connection.executescript("PRAGMA analysis_limit=1000; ANALYZE;")


def mlflow_experiment(name: str) -> str:
    """Return the name of a study's MLflow experiment, in the folder ``H2H_MLFLOW_FOLDER`` of a Databricks workspace."""
    folder = os.environ.get("H2H_MLFLOW_FOLDER", "").rstrip("/")
    return f"{folder}/{name}" if folder else name


def load_mlflow() -> ModuleType:
    """Import mlflow with `SETTINGS`; environment variables set by the user take precedence."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return importlib.import_module("mlflow")


def database_of(uri: str) -> Path | None:
    """Return the absolute path of the file of a SQLite store, which need not exist, or None for any other store.

    Raises:
        HeadToHeadError: If the path is that of a folder.
    """
    if not uri.startswith("sqlite:///"):
        return None
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()
    if path.is_dir():
        raise HeadToHeadError(
            f"MLflow store {without_password(uri)} is a folder; append the name of a file, such as mlflow.db"
        )
    return path


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Convert errors of a store, its disk or its server into HeadToHeadError."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise _explained(error, without_password(uri)) from error


def _explained(error: Exception, store: str) -> HeadToHeadError:
    """Return the error of a store as one line with what to do: a `DeniedError` if the server refuses access."""
    reason = " ".join(str(error).split()) or type(error).__name__
    for damage in DAMAGE:
        if damage in reason:
            return HeadToHeadError(f"MLflow store {store} is damaged ({damage}); {MOVE_AWAY}")
    cause = reason.rpartition("(Caused by ")[2]
    without_query = re.split(r" \[SQL: | \(Background on ", cause)[0]
    message = (
        f"cannot use the MLflow store {store}: {without_query[:200]}; "
        "no run is lost, run h2h sync when the store is available"
    )
    if getattr(error, "error_code", None) in DENIED:
        return DeniedError(message)
    return HeadToHeadError(message)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the refusal of values of a run into a HeadToHeadError, which concerns that run alone."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code not in REFUSED:
            raise
        raise HeadToHeadError(str(error.message)) from error


def open_store(uri: str, *, create: bool) -> Store:
    """Open a store and check it with a first request; with ``create``, create a missing SQLite store.

    Raises:
        DeniedError: If the server refuses access.
        HeadToHeadError: If there is no SQLite store and ``create`` is False; if its file is damaged, no MLflow store or
            of another version; if the URI is that of a folder or a file store; or if the server or disk cannot be used.
    """
    load_mlflow()
    from mlflow import MlflowClient

    database = database_of(uri)
    with store_errors(uri):
        if database is not None:
            _prepare(uri, database, create)
        elif "://" not in uri or uri.startswith("file:"):
            raise HeadToHeadError(
                f"MLflow's file store '{uri}' is not supported; "
                f"set {URI_VARIABLE} to sqlite:///PATH or to a server's http://HOST:PORT"
            )
        _register_pragmas()
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        # The client connects at its first call, which is made here so that its errors are converted.
        client.search_experiments(max_results=1)
        return Store(uri, client, database)


@contextmanager
def locked(uri: str) -> Iterator[None]:
    """Hold the lock of a SQLite store, so that only a single shipper on this machine writes to it.

    Other stores have no lock.

    Raises:
        HeadToHeadError: If another process holds the lock for ``LOCK_SECONDS``.
    """
    database = database_of(uri)
    if database is None:
        yield
        return
    problem = f"another process has locked the MLflow store {without_password(uri)} for {LOCK_SECONDS:.0f} s"
    error = HeadToHeadError(f"{problem}; run h2h sync when it has ended")
    with files.locked(database.with_name(f"{database.name}.lock"), LOCK_SECONDS, error):
        yield


def _prepare(uri: str, database: Path, create: bool) -> None:
    """Create the store if it is missing, and check that the installed mlflow supports its schema.

    Raises:
        HeadToHeadError: If the store is missing and ``create`` is False, another process locks it while it is created,
            the file is no MLflow store, or its schema is older or newer than that of mlflow.
    """
    from mlflow.store.db.utils import _get_latest_schema_revision, _get_schema_version
    from sqlalchemy import NullPool, create_engine

    if not create and not database.exists():
        raise HeadToHeadError(f"there is no MLflow store at {database}; run h2h sync first")
    if not database.exists():
        with locked(uri):
            if not database.exists():
                _create(database)
    engine = create_engine(
        f"sqlite:///file:{quote(str(database))}?mode=ro&uri=true", poolclass=NullPool
    )
    version = _get_schema_version(engine)  # type: ignore[no-untyped-call]
    expected = _get_latest_schema_revision()  # type: ignore[no-untyped-call]
    if version is None:
        raise HeadToHeadError(
            f"{database} is not an MLflow store; {MOVE_AWAY}, or set {URI_VARIABLE} to another store"
        )
    if version != expected:  # MLflow would add tables to an older store
        raise HeadToHeadError(
            f"MLflow store {database} has schema '{version}', but this mlflow has '{expected}'; if the store is older, "
            f"make a copy, then run: mlflow db upgrade sqlite:///{database}; if it is newer, install a newer mlflow, "
            f"or set {URI_VARIABLE} to another store"
        )


def _create(database: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    build: Callable[[str, str], Any] = SqlAlchemyStore
    with tempfile.TemporaryDirectory(prefix="h2h-") as folder:
        fresh = Path(folder, "mlflow.db")
        build(f"sqlite:///{fresh}", (database.parent / ARTIFACTS).as_uri()).engine.dispose()
        with closing(sqlite3.connect(fresh)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        files.replace(database, lambda temporary: shutil.copyfile(fresh, temporary))


@functools.cache
def _register_pragmas() -> None:
    from sqlalchemy import Engine, event

    @event.listens_for(Engine, "connect")
    def fast_and_safe(connection: Any, _record: Any) -> None:
        # With WAL, NORMAL loses at most the last transactions on a power failure; h2h sync replays them.
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=NORMAL")
