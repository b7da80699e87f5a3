"""``.auto/log.jsonl`` of pi-autoresearch (github.com/davebcn87/pi-autoresearch): a line per run of a session.

A line with ``"type": "config"`` names the metric and begins a segment; the last segment is read, as that program does.
The description of a run is its variant and the runs of one description are seeds, since a discarded run has the commit
that was kept before it. Runs with the status ``crash`` or ``checks_failed`` are not finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers.formats import (
    CRASHED,
    HIGHER_IS_BETTER,
    TableFormat,
    unreadable_row,
)

COLUMNS = frozenset({"type", "run", "commit", "metric", "status"})
STATES = {
    "keep": "finished",
    "discard": "finished",
    "crash": CRASHED,
    "checks_failed": CRASHED,
}
DIRECTIONS = {"lower": False, "higher": True}


def convert(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the table of scores of the last segment, with the direction of its metric as an attribute.

    Raises:
        HeadToHeadError: If a line is neither a config, a hook nor a run, or a run has another status, or no
            description.
    """
    metric = "metric"
    direction = "lower"
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(table.to_dict("records"), 1):
        if line["type"] == "config":
            metric = line.get("metricName") or "metric"
            direction = line.get("bestDirection") or "lower"
            if direction not in DIRECTIONS:
                raise unreadable_row(
                    path, number, f"unknown bestDirection '{direction}'; use lower or higher"
                )
            rows = []
        elif line["run"] is not None:
            rows.append(_run(line, metric, path, number))
        elif line["type"] != "hook":
            raise unreadable_row(path, number, "neither a config, a hook nor a run; remove it")
    if not rows:
        raise HeadToHeadError(f"{path}: the last config is followed by no run")
    scores = pd.DataFrame(rows, dtype="object")
    scores["seed"] = (scores.groupby("variant").cumcount() + 1).astype(str)
    scores.attrs[HIGHER_IS_BETTER] = {metric: DIRECTIONS[direction]}
    return scores


def _run(line: Mapping[Any, Any], metric: str, path: Path, number: int) -> dict[str, Any]:
    """Return the row of a run, with the metric of its segment and its further metrics."""
    status = line["status"]
    if status not in STATES:
        raise unreadable_row(
            path, number, f"unknown status '{status}'; use one of {', '.join(STATES)}"
        )
    description = line.get("description")
    if not description:
        raise unreadable_row(path, number, "the run has no description, which names its variant")
    further = line.get("metrics") or {}
    if not isinstance(further, dict):
        raise unreadable_row(path, number, f"'metrics' is no object: '{further}'")
    return {
        "variant": description,
        **further,
        metric: line["metric"],
        "commit": line["commit"],
        "status": STATES[status],
    }


PI_AUTORESEARCH = TableFormat("log.jsonl of pi-autoresearch", COLUMNS, convert)
