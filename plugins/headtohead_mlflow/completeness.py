"""Whether a SQLite store has a study as it is, found without mlflow, whose import takes a second."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace

from headtohead.files import read_text
from headtohead.plugin import Answer
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.staleness import stale_changes
from headtohead.tracking.study import SHIPPING_FORMAT, TrackedStudy, logger_file
from headtohead_mlflow.run_page import RUN_HASH_TAG, SHIPPED_TAG
from headtohead_mlflow.store import ID_TAG, database_of, mlflow_experiment

INDEX = "headtohead studies"
"""The MLflow experiment with a summary run per study."""

STUDY_TAG = "h2h.study"
CONTENT_TAG = "h2h.content"
"""Tag of the summary run of a study that was logged as a whole: its `study_hash`."""

IDENTITY = "mlflow.id"
"""File with the id of the study, copied with its folder."""

RUNS = """
SELECT run_hash.value, shipped.value FROM runs
JOIN experiments USING (experiment_id)
JOIN experiment_tags AS owner USING (experiment_id)
JOIN tags AS run_hash USING (run_uuid)
JOIN tags AS shipped USING (run_uuid)
WHERE experiments.name = ? AND experiments.lifecycle_stage = 'active'
AND owner.key = ? AND owner.value = ?
AND runs.lifecycle_stage = 'active' AND runs.status <> 'RUNNING'
AND run_hash.key = ? AND shipped.key = ?
"""
SUMMARIES = """
SELECT content.value FROM runs
JOIN experiments USING (experiment_id)
JOIN tags AS study USING (run_uuid)
JOIN tags AS content USING (run_uuid)
WHERE experiments.name = ? AND experiments.lifecycle_stage = 'active'
AND runs.lifecycle_stage = 'active'
AND study.key = ? AND study.value = ? AND content.key = ?
"""


def study_hash(study: TrackedStudy, answer: Answer | None) -> str:
    """Return a hash of all that is logged of a study: its record, its runs, its answer and the files of its report."""
    content = hashlib.sha256(f"{SHIPPING_FORMAT} {stale_changes(study)}".encode())
    content.update((study.path / EXPERIMENT).read_bytes())
    for run in study.runs():
        content.update(run.content_hash().encode())
    if answer is not None:
        names = sorted(answer.report)
        content.update(repr((replace(answer, report={}), names)).encode())
        for name in names:
            content.update(answer.report[name].read_bytes())
    return content.hexdigest()


def store_has(study: TrackedStudy, answer: Answer | None, uri: str) -> bool:
    """Return whether a store has all runs of a study and its answer, unchanged.

    False too for a store that is no SQLite file or cannot be read, and if a run of the study has not begun.
    """
    database = database_of(uri)
    identity = logger_file(study.path, IDENTITY)
    if database is None or not database.is_file() or not identity.is_file():
        return False
    owner = read_text(identity)
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            experiment = mlflow_experiment(study.name)
            of_runs = (experiment, ID_TAG, owner, RUN_HASH_TAG, SHIPPED_TAG)
            shipped = dict(connection.execute(RUNS, of_runs).fetchall())
            of_summary = (mlflow_experiment(INDEX), STUDY_TAG, study.name, CONTENT_TAG)
            contents = connection.execute(SUMMARIES, of_summary).fetchall()
    except sqlite3.Error:  # damaged, locked, or with other tables; a pass says which
        return False
    for run in study.runs():
        if not run.begun() or shipped.get(run.run_hash) != run.content_hash():
            return False
    return contents == [(study_hash(study, answer),)]
