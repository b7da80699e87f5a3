"""``h2h list``: the experiments of a runs folder."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headtohead.cli.options import format_option, runs_option
from headtohead_judge.output import echo, echo_json, print_table


@click.command("list")
@runs_option
@format_option("json: one record per experiment.", "json")
def command(runs: Path, form: str) -> None:
    """List the experiments of the runs folder: runs by state, size on disk and last change.

    STALE: the experiment file, a data file or a plugin has changed since the runs were trained; h2h status names it.
    """
    from datetime import UTC, datetime

    from headtohead.errors import HeadToHeadError
    from headtohead.storage.experiment import experiment_folders
    from headtohead.storage.progress import read_progress
    from headtohead.storage.run_files import disk_usage, show_size

    records: list[dict[str, Any]] = []
    damaged = []
    for folder in experiment_folders(runs):
        try:
            progress = read_progress(folder)
        except HeadToHeadError as error:
            damaged.append(str(error))
            continue
        states = Counter(run.state for run in progress.runs)
        size, changed = disk_usage(folder)
        record: dict[str, Any] = {
            "name": folder.name,
            "question": progress.record.question,
            "runs": dict(states.most_common()),
            "stale": progress.stale,
            "bytes": size,
            "changed": datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds"),
        }
        records.append(record)
    records.sort(key=lambda record: record["changed"], reverse=True)
    if form == "json":
        echo_json(records)
    elif records:
        rows = []
        for record in records:
            local_time = datetime.fromisoformat(record["changed"]).astimezone()
            cells = [record["name"], _runs(record), show_size(record["bytes"])]
            cells += [local_time.strftime("%Y-%m-%d %H:%M"), record["question"]]
            rows.append(cells)
        print_table(["experiment", "runs", "size", "last change", "question"], rows, right=(2,))
    elif not damaged:
        echo(f"no experiments in '{runs}'; start with h2h run FILE")
    for line in damaged:
        echo(f"h2h: {line}", err=True)
    if damaged:
        sys.exit(2)


def _runs(record: Mapping[str, Any]) -> str:
    """Return the number of runs by state, and whether they are STALE."""
    counts = [f"{count} {state}" for state, count in record["runs"].items()]
    if record["stale"]:
        counts.append("STALE")
    return ", ".join(counts)
