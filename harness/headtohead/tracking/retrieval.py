"""Building a runs folder again from a store that holds the study, for reports made elsewhere.

Every MLflow run carries its run directory's files unchanged below ``run/``, and the study's run the
plan: what is built here is what was shipped, and everything that reads run directories reads it.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from headtohead.errors import HeadToHeadError, nearest
from headtohead.storage.records import EXPERIMENT
from headtohead.tracking.description import KEY_TAG
from headtohead.tracking.replay import all_runs
from headtohead.tracking.rundirs import read_study
from headtohead.tracking.staging import RAW
from headtohead.tracking.store import Store, database_of, one_line, open_store, readable
from headtohead.tracking.study import INDEX, STUDY_TAG

# Schemas of MLflow 3.17 whose tables were looked at; any other is read through MLflow's client.
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
class Held:
    """A run in the store: its id and where its artifacts lie."""

    run_id: str
    artifacts: str


def materialise(uri: str, experiment_name: str, into: Path) -> Path:
    """Write the study's plan and runs below ``into``, in the layout of a runs folder.

    Weights are left in the store. A run that was planned but never shipped has no directory.

    Returns:
        The experiment's folder.

    Raises:
        HeadToHeadError: If the store cannot be read, or holds no study of that name.
    """
    source = _source(uri)
    studies = source.runs(INDEX, STUDY_TAG)
    if experiment_name not in studies:
        raise HeadToHeadError(f"no study '{experiment_name}' in {readable(uri)}{nearest(experiment_name, studies)}")
    folder = into / experiment_name
    if folder.exists():
        raise HeadToHeadError(f"'{folder}' exists already; name a folder without it")
    source.fetch(studies[experiment_name], EXPERIMENT, folder / EXPERIMENT)
    study = read_study(folder)
    held = source.runs(experiment_name, KEY_TAG)
    for run in study.record.runs:
        if run.key in held:
            directory = study.run_path(run)
            if not directory.exists():
                source.fetch(held[run.key], RAW, directory)
    return folder


class _Database:
    """A SQLite store with artifacts on this machine, read without mlflow and without writing."""

    def __init__(self, database: Path) -> None:
        self.database = database

    def runs(self, experiment: str, tag: str) -> dict[str, Held]:
        with closing(_read_only(self.database)) as connection:
            rows = connection.execute(RUNS_OF, (tag, experiment)).fetchall()
        return {value: Held(run_id, location) for value, run_id, location in rows}

    def fetch(self, held: Held, name: str, into: Path) -> None:
        _copy(_local(held.artifacts) / name, into, held)


class _Client:
    """Any other store, read through MLflow's client."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def runs(self, experiment: str, tag: str) -> dict[str, Held]:
        held: dict[str, Held] = {}
        with one_line(self.store.uri):
            found = self.store.client.get_experiment_by_name(experiment)
            for run in all_runs(self.store, found.experiment_id) if found else ():
                if tag in run.data.tags:
                    known = Held(run.info.run_id, run.info.artifact_uri)
                    held.setdefault(run.data.tags[tag], known)
        return held

    def fetch(self, held: Held, name: str, into: Path) -> None:
        into.parent.mkdir(parents=True, exist_ok=True)
        with one_line(self.store.uri):
            got = Path(self.store.client.download_artifacts(held.run_id, name, dst_path=str(into.parent)))
            if got != into:
                got.replace(into)


def _source(uri: str) -> _Database | _Client:
    database = database_of(uri)
    if database is not None and database.is_file() and _plain(database):
        return _Database(database)
    return _Client(open_store(uri, create=False))


def _plain(database: Path) -> bool:
    """Say whether the tables are known ones and all artifacts lie on this machine.

    What cannot be read is left to MLflow's client, which says what is wrong with it.
    """
    try:
        with closing(_read_only(database)) as connection:
            schema = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            places = connection.execute("SELECT artifact_location FROM experiments").fetchall()
    except sqlite3.Error:
        return False
    local = all((place or "").startswith(("file:", "/")) for (place,) in places)
    return schema is not None and schema[0] in READABLE_SCHEMAS and local


def _read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)


def _local(location: str) -> Path:
    path = unquote(urlparse(location).path) if location.startswith("file:") else location
    return Path(path)


def _copy(source: Path, into: Path, held: Held) -> None:
    into.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, into, symlinks=True)
        else:
            shutil.copyfile(source, into, follow_symlinks=False)
    except FileNotFoundError as error:
        raise HeadToHeadError(
            f"artifacts of MLflow run {held.run_id} are not at {source}; was the store moved?"
        ) from error
