"""Projects of Trackio: the database ``PROJECT.db``, and its Parquet export.

``PROJECT.parquet`` needs ``PROJECT_configs.parquet`` beside it. Variant and seed are values of the config of a run.
Without a value ``variant``, its group is the variant.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import load_json
from headtohead_judge.readers.formats import (
    HAS_STEPS,
    DatabaseFormat,
    Rows,
    TableFormat,
    unreadable_row,
)
from headtohead_judge.score_files import read_score_file

IDENTITY = ("id", "run_id", "timestamp", "run_name", "step", "log_id", "space_id", "created_at")
"""Columns that are neither a metric nor a value of the config."""

GROUP = "_Group"
INTERNAL = "_"


def read_database(connection: sqlite3.Connection, path: Path) -> pd.DataFrame:
    """Return a row per run, step and metric of a project's database."""
    configs = {}
    for run, text in connection.execute("SELECT run_id, config FROM configs"):
        configs[run] = _config(_object(text, path, f"the config of run {run}"))
    query = "SELECT id, run_id, run_name, step, metrics FROM metrics ORDER BY id"
    rows: Rows = []
    for number, run, name, step, text in connection.execute(query):
        metrics = _object(text, path, f"row {number} of the table 'metrics'")
        rows += _metric_rows(configs.get(run, {}), name, step, metrics.items())
    return _table(rows, path)


def convert(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a row per run, step and metric of an export.

    Raises:
        HeadToHeadError: If the file of the configs is missing, or a run has no step.
    """
    of_configs = path.with_name(f"{path.stem}_configs{path.suffix}")
    if not of_configs.exists():
        raise HeadToHeadError(
            f"{path}: the configs of the runs are missing; store {of_configs.name} beside it"
        )
    configs = {}
    for record in read_score_file(of_configs).to_dict("records"):
        values = {str(name): value for name, value in record.items() if name not in IDENTITY}
        configs[record["run_id"]] = _config(values)
    rows: Rows = []
    for number, record in enumerate(table.to_dict("records"), 1):
        if record["step"] is None:
            raise unreadable_row(path, number, "no step; remove the row")
        metrics = [(str(name), value) for name, value in record.items() if name not in IDENTITY]
        config = configs.get(record["run_id"], {})
        rows += _metric_rows(config, record["run_name"], record["step"], metrics)
    return _table(rows, path)


def _object(text: str | bytes, path: Path, where: str) -> dict[str, Any]:
    """Return an object of JSON, with numbers as text."""
    try:
        value = load_json(
            str(text, "utf-8") if isinstance(text, bytes) else text,
            parse_int=str,
            parse_float=str,
        )
    except (ValueError, RecursionError) as error:
        raise HeadToHeadError(f"{path}: {where} is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise HeadToHeadError(f"{path}: {where} is no JSON object")
    return value


def _config(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a config that are texts, numbers or truth values, with the variant."""
    config = {}
    for name, value in values.items():
        if not name.startswith(INTERNAL) and isinstance(value, str | bool):
            config[name] = value if isinstance(value, str) else json.dumps(value)
    group = values.get(GROUP)
    if isinstance(group, str):
        config.setdefault("variant", group)
    return config


def _metric_rows(
    config: Mapping[str, str], run_name: str, step: Any, metrics: Iterable[tuple[str, Any]]
) -> Rows:
    """Return a row for each metric of a step; text is a number, since numbers are read as text."""
    run = {**config, "run_name": run_name, "step": str(step)}
    rows: Rows = []
    for name, value in metrics:
        if isinstance(value, str):
            rows.append(run | {"metric": name, "value": value})
    return rows


def _table(rows: Rows, path: Path) -> pd.DataFrame:
    if not rows:
        raise HeadToHeadError(f"{path}: no run has a metric")
    table = pd.DataFrame(rows, dtype="object")
    table.attrs[HAS_STEPS] = True
    return table


TRACKIO_TABLE = TableFormat(
    "Parquet export of Trackio", frozenset({"run_id", "run_name", "timestamp", "step"}), convert
)
TRACKIO_DATABASE = DatabaseFormat(
    "PROJECT.db of Trackio", frozenset({"metrics", "configs"}), read_database
)
