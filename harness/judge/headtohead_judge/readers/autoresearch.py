"""``results.tsv`` of autoresearch (github.com/karpathy/autoresearch): a row per run, with its commit and ``val_bpb``.

A commit is a variant, and its rows are seeds. Crashed runs are not finished. Where a fork has another score, every
column but those of the run is a metric.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headtohead_judge.readers.formats import CRASHED, TableFormat, unreadable_row

COLUMNS = frozenset({"commit", "status", "description"})
METRIC = "val_bpb"
STATES = {"keep": "finished", "discard": "finished", "crash": CRASHED}


def convert(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table of scores of a ``results.tsv``; raise a `HeadToHeadError` for another status.

    A table without any status of autoresearch is returned as it is.
    """
    states = [STATES.get(str(status).strip().lower()) for status in table["status"]]
    if not any(states):
        return table
    for number, (status, state) in enumerate(zip(table["status"], states, strict=True), 1):
        if state is None:
            reason = f"unknown status '{status}'; use one of {', '.join(STATES)}"
            raise unreadable_row(path, number, reason)
    seeds = table.groupby("commit").cumcount() + 1
    scores = table.drop(columns=[*COLUMNS])
    if METRIC in table.columns:
        scores = table[[METRIC]]
    return scores.assign(
        variant=table["commit"],
        seed=seeds.astype(str),
        status=pd.Series(states, index=scores.index),
    )


AUTORESEARCH = TableFormat("results.tsv of autoresearch", COLUMNS, convert)
