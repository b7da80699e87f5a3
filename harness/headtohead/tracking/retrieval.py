"""Reconstruction of a runs folder from an MLflow store, for reports on other machines.

Every MLflow run has the unchanged files of its run directory below ``run/``, and the experiment's summary run has the
plan.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from headtohead.errors import HeadToHeadError, nearest
from headtohead.files import write_json
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.run import CHECKPOINT, STATUS, stored_status
from headtohead.tracking.description import RUN_HASH_TAG
from headtohead.tracking.rundirs import TrackedStudy
from headtohead.tracking.staging import RAW
from headtohead.tracking.store import Store, all_runs, database_of, one_line, open_store, readable
from headtohead.tracking.study import INDEX, STUDY_TAG

# Database schemas of MLflow 3.17 that are read directly; others are read with MLflow's client.
READABLE_SCHEMAS = frozenset({"dc11669786a5"})
RUNS_OF = """
    SELECT tags.value, runs.run_uuid, runs.artifact_uri FROM tags
    JOIN runs ON runs.run_uuid = tags.run_uuid
    JOIN experiments ON experiments.experiment_id = runs.experiment_id
    WHERE tags.key = ? AND experiments.name = ?
      AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY runs.start_time DESC
"""


@dataclass(frozen=True)
class StoredRun:
    """A run in the store: its id and the location of its artifacts."""

    run_id: str
    artifacts: str


def materialise(uri: str, experiment_name: str, into: Path) -> Path:
    """Write an experiment's plan and runs below ``into``, in the layout of a runs folder.

    Weights are not downloaded. A run that was never logged has no directory.

    Returns:
        The experiment's folder.

    Raises:
        HeadToHeadError: If the store cannot be read or has no experiment of that name.
    """
    source = _source(uri)
    studies = source.runs(INDEX, STUDY_TAG)
    if experiment_name not in studies:
        raise HeadToHeadError(
            f"no experiment '{experiment_name}' in {readable(uri)}{nearest(experiment_name, studies)}"
        )
    folder = into / experiment_name
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' already exists; choose another folder")
    source.fetch(studies[experiment_name], EXPERIMENT, folder / EXPERIMENT)
    study = TrackedStudy.read(folder)
    stored_runs = source.runs(experiment_name, RUN_HASH_TAG)
    for run in study.record.runs:
        if run.run_hash in stored_runs:
            directory = study.run_path(run)
            if not directory.exists():
                source.fetch(stored_runs[run.run_hash], RAW, directory)
                _without_weights(directory)
    return folder


def _without_weights(run: Path) -> None:
    """Remove the checkpoint, which is not in ``run/``, from the files that status.json lists."""
    status = stored_status(run)
    if CHECKPOINT in status.files:
        present = {name: digest for name, digest in status.files.items() if name != CHECKPOINT}
        write_json(run / STATUS, status.model_copy(update={"files": present}).to_json())


class _Database:
    """A SQLite store with local artifacts, read without mlflow and without writing."""

    def __init__(self, database: Path) -> None:
        self.database = database

    def runs(self, experiment: str, tag: str) -> dict[str, StoredRun]:
        with closing(_read_only(self.database)) as connection:
            rows = connection.execute(RUNS_OF, (tag, experiment)).fetchall()
        return {value: StoredRun(run_id, location) for value, run_id, location in rows}

    def fetch(self, stored: StoredRun, name: str, into: Path) -> None:
        _copy(_local(stored.artifacts) / name, into, stored)


class _Client:
    """Any other store, read with MLflow's client."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def runs(self, experiment: str, tag: str) -> dict[str, StoredRun]:
        stored_runs: dict[str, StoredRun] = {}
        with one_line(self.store.uri):
            mlflow_experiment = self.store.client.get_experiment_by_name(experiment)
            for run in all_runs(self.store, mlflow_experiment.experiment_id) if mlflow_experiment else ():
                if tag in run.data.tags:
                    stored = StoredRun(run.info.run_id, run.info.artifact_uri)
                    stored_runs.setdefault(run.data.tags[tag], stored)
        return stored_runs

    def fetch(self, stored: StoredRun, name: str, into: Path) -> None:
        into.parent.mkdir(parents=True, exist_ok=True)
        with one_line(self.store.uri):
            downloaded = Path(self.store.client.download_artifacts(stored.run_id, name, dst_path=str(into.parent)))
            if downloaded != into:
                downloaded.replace(into)


def _source(uri: str) -> _Database | _Client:
    database = database_of(uri)
    if database is not None and database.is_file() and _is_readable(database):
        return _Database(database)
    return _Client(open_store(uri, create=False))


def _is_readable(database: Path) -> bool:
    """Return whether the database has a known schema and all artifacts are on this machine.

    Any other database is left to MLflow's client, which also reports errors.
    """
    try:
        with closing(_read_only(database)) as connection:
            schema = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            locations = connection.execute("SELECT artifact_location FROM experiments").fetchall()
    except sqlite3.Error:
        return False
    local = all((location or "").startswith(("file:", "/")) for (location,) in locations)
    return schema is not None and schema[0] in READABLE_SCHEMAS and local


def _read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)


def _local(location: str) -> Path:
    path = unquote(urlparse(location).path) if location.startswith("file:") else location
    return Path(path)


def _copy(source: Path, into: Path, stored: StoredRun) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, into, symlinks=True)
        else:
            shutil.copyfile(source, into, follow_symlinks=False)
    except FileNotFoundError as error:
        raise HeadToHeadError(
            f"artifacts of MLflow run {stored.run_id} are not at {source}; restore the folder if it was moved"
        ) from error
