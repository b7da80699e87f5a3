"""Exports of Weights & Biases: the CSV of the runs table, the CSV of the API's example, and histories as JSON.

- Runs table: columns ``Name`` and ``State``. Without a column ``variant``, ``Group`` is the variant.
- API: the example of its documentation writes the columns ``name``, and ``summary`` and ``config`` as dictionaries.
- Histories: ``VARIANT/SEED/history.json`` with the list that ``run.history(pandas=False)`` returns.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers.formats import (
    FolderFormat,
    Rows,
    TableFormat,
    read_json,
    unreadable_row,
)

STEP = "_step"
API_COLUMNS = ("config", "summary")
INTERNAL = "_"
"""First letter of the names of the values that W&B adds, such as ``_runtime``."""


def convert_runs(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the runs table with the column ``variant``, which is ``Group`` if the table has none of this name."""
    del path
    if "variant" in table.columns or "Group" not in table.columns:
        return table
    return table.assign(variant=table["Group"])


def convert_api(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a row per run with the values of its config and its summary.

    Raises:
        HeadToHeadError: If a cell is no dictionary, or a name is in both with different values.
    """
    rows: Rows = []
    for number, record in enumerate(table.to_dict("records"), 1):
        row: dict[str, Any] = {"name": record["name"]}
        for column in API_COLUMNS:
            for name, value in _dictionary(record[column], column, path, number).items():
                if str(name).startswith(INTERNAL) or isinstance(value, dict | list):
                    continue
                if row.setdefault(str(name), value) != value:
                    reason = (
                        f"'{name}' is {row[str(name)]} in config and {value} in summary; remove one"
                    )
                    raise unreadable_row(path, number, reason)
        rows.append(row)
    return pd.DataFrame(rows, dtype="object")


def _dictionary(text: str, column: str, path: Path, number: int) -> dict[Any, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        reason = f"'{column}' is no dictionary of plain values; write config and summary as columns"
        raise unreadable_row(path, number, reason) from error
    if not isinstance(value, dict):
        raise unreadable_row(
            path, number, f"'{column}' is no dictionary; write its values as columns"
        )
    return value


def read_histories(files: list[Path], folder: Path) -> Rows:
    """Return a row per run, step and metric.

    Raises:
        HeadToHeadError: If a file has no list of rows with `STEP`, or is not in folders of its variant and seed.
    """
    rows: Rows = []
    for file in files:
        *variant, seed = ("", *file.parent.relative_to(folder).parts)
        if len(variant) < 2:
            raise HeadToHeadError(
                f"{file}: no variant and seed; store it as VARIANT/SEED/{file.name}"
            )
        run = {"variant": "/".join(variant[1:]), "seed": seed}
        for number, record in enumerate(_history(file), 1):
            if not isinstance(record, dict) or STEP not in record:
                raise unreadable_row(
                    file, number, f"no object with '{STEP}', as histories of W&B have"
                )
            for name, value in record.items():
                is_score = isinstance(value, str) and not name.startswith(INTERNAL)
                if is_score:
                    rows.append(run | {"step": record[STEP], "metric": name, "value": value})
    return rows


def _history(file: Path) -> list[Any]:
    """Return the rows of a history, with numbers as text."""
    history = read_json(file, advice="name a folder of readable histories")
    if not isinstance(history, list):
        raise HeadToHeadError(
            f"{file}: not a list of rows, as run.history(pandas=False) of W&B returns"
        )
    return history


WANDB_RUNS_TABLE = TableFormat(
    "CSV of the runs table of W&B", frozenset({"Name", "State"}), convert_runs
)
WANDB_API_TABLE = TableFormat(
    "CSV of the API of W&B", frozenset({"summary", "config", "name"}), convert_api
)
WANDB_HISTORIES = FolderFormat(
    "histories of W&B as VARIANT/SEED/history.json", ("history.json",), read_histories
)
