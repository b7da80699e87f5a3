"""``results.csv`` of nanochat's miniseries and scaling laws (github.com/karpathy/nanochat): a row per depth.

In a folder with the results of several series, a series is a variant, paired with the others by depth. In a single
file, a depth is a variant, and its rows are seeds. ``core_score`` is missing where nanochat writes 0.0 for it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers.formats import (
    FolderFormat,
    Rows,
    TableFormat,
    subfolder_or_name,
    unreadable_row,
)
from headtohead_judge.score_files import read_score_file

COLUMNS = frozenset({"depth", "num_iterations", "tokens_trained", "val_bpb", "core_score"})
BUDGET = "flops_budget"
METRICS = ("val_bpb", "core_score", "train_time_sec")
WITHOUT_SCORE = "0.0"


def convert(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table of scores of one file: a depth, or a budget and a depth, is a variant."""
    rows = _rows(table, path)
    scores = pd.DataFrame(rows, dtype="object").rename(columns={"seed": "variant"})
    scores["seed"] = (scores.groupby("variant").cumcount() + 1).astype(str)
    return scores


def read(files: list[Path], folder: Path) -> Rows:
    """Return the rows of several series; the depth, or the budget and the depth, takes the place of the seed.

    Raises:
        HeadToHeadError: If a file is no such table.
    """
    rows: Rows = []
    for file in files:
        table = read_score_file(file)
        missing = sorted(COLUMNS - {*table.columns})
        if missing:
            raise HeadToHeadError(
                f"{file}: no results.csv of nanochat; it has no column '{missing[0]}'"
            )
        variant = subfolder_or_name(file, folder)
        rows += [{"variant": variant} | row for row in _rows(table, file)]
    return rows


def _rows(table: pd.DataFrame, path: Path) -> Rows:
    """Return the depth and the metrics of each row; raise a `HeadToHeadError` for a row without a depth."""
    rows: Rows = []
    for number, record in enumerate(table.to_dict("records"), 1):
        if not record["depth"]:
            raise unreadable_row(path, number, "no depth; remove the row")
        depth = f"d{record['depth']}"
        if BUDGET in record:
            depth = f"{record[BUDGET]} {depth}"
        scores = {name: record.get(name) for name in METRICS}
        if scores["core_score"] == WITHOUT_SCORE:
            scores["core_score"] = None
        rows.append({"seed": depth} | scores)
    return rows


TITLE = "results.csv of nanochat"
NANOCHAT = TableFormat(TITLE, COLUMNS, convert)
NANOCHAT_SERIES = FolderFormat(TITLE, ("results.csv",), read)
