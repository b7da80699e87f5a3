"""Compare records of track 1 of modded-nanogpt with runs of the earlier record by the same author."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from headtohead_judge import verdicts
from headtohead_judge.result_folders import read_results
from headtohead_judge.unpaired import unpaired

MAX_RATIO = 2.0
"""Largest ratio of the mean training times of two sides; a larger one means another number of GPUs."""

COLUMNS = {
    "record": "record",
    "variant": "runs of",
    "baseline": "against runs of",
    "runs": "runs",
    "steps": "steps",
    "seconds": "seconds",
    "seconds_interval": "95 % interval",
    "loss": "loss",
    "loss_interval": "95 % interval",
}


class Rerun(NamedTuple):
    """The last values of the runs of a variant and of the earlier record, with the columns of `read_results`."""

    record: str
    variant: str
    baseline: str
    new: pd.DataFrame
    old: pd.DataFrame


def reruns(clone: Path) -> Iterator[Rerun]:
    """Yield the variants of each record whose folder has runs of a baseline, in the order of the records.

    Of several baselines with a training time within `MAX_RATIO`, the one with the smallest mean loss is used. Both
    sides have at least two runs.
    """
    for folder in sorted((clone / "records" / "track_1_short").iterdir()):
        if not any("baseline" in child.name.lower() for child in folder.glob("*/")):
            continue
        runs = _last_values(read_results(folder))
        sides = {str(name): rows for name, rows in runs.groupby("variant") if len(rows) > 1}
        baselines = {name: rows for name, rows in sides.items() if "baseline" in name.lower()}
        for name, new in sides.items():
            if name in baselines:
                continue
            alike = {}
            for baseline, old in baselines.items():
                ratio = new["train_seconds"].mean() / old["train_seconds"].mean()
                if 1 / MAX_RATIO < ratio < MAX_RATIO:
                    alike[baseline] = float(old["val_loss"].mean())
            if alike:
                best = min(alike, key=alike.__getitem__)
                yield Rerun(folder.name, name, best, new, baselines[best])


def _last_values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the last step of each run, with numbers."""
    columns = ["step", "val_loss", "train_seconds"]
    numbers = table.assign(**{name: pd.to_numeric(table[name]) for name in columns})
    return numbers.sort_values("step").groupby(["variant", "seed"]).tail(1)


def rerun_rows(clone: Path) -> tuple[list[dict[str, str]], dict[str, int]]:
    """Return a row per variant, and the number of rows by column and direction, such as ``seconds better``.

    The intervals of each column are simultaneous.
    """
    found = list(reruns(clone))
    rows = []
    for rerun in found:
        steps = [f"{int(side['step'].max()):,}" for side in (rerun.old, rerun.new)]
        rows.append(
            {
                "record": rerun.record,
                "variant": rerun.variant,
                "baseline": rerun.baseline,
                "runs": f"{len(rerun.new)}, {len(rerun.old)}",
                "steps": steps[1] if steps[0] == steps[1] else f"{steps[1]}, not {steps[0]}",
            }
        )
    counts = {"records": len({rerun.record for rerun in found}), "variants": len(found)}
    for column, name, digits in (("seconds", "train_seconds", 2), ("loss", "val_loss", 4)):
        differences = [unpaired(rerun.new[name], rerun.old[name]) for rerun in found]
        for row, difference, judgement in zip(
            rows, differences, verdicts.judge(differences, higher_is_better=False), strict=True
        ):
            row[column] = f"{difference.mean:+.{digits}f}"
            interval = judgement.interval
            row[f"{column}_interval"] = f"{interval.low:+.{digits}f} to {interval.high:+.{digits}f}"
            key = f"{column} {judgement.direction or 'undecided'}"
            counts[key] = counts.get(key, 0) + 1
    return rows, counts
