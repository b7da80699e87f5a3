"""Two axes crossed: the table of their pairs, and how far either axis decides a score alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from headtohead.analysis.study import Analysis
from headtohead.statistics.paired_tests import Summary
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import higher_is_better, label
from headtohead.storage.records import ExcludedRecord, VariantRecord

LEAST_VALUES = 3
"""Two axes make a table where each has as many values."""


@dataclass(frozen=True)
class Grid:
    """The scores of all pairs of values of two axes.

    ``rows`` and ``columns`` are values as they are printed, best first by the median of their
    cells. ``cells`` has the variant of a pair, ``reasons`` why a pair has none.
    """

    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    reasons: Mapping[tuple[str, str], str]
    summaries: Mapping[str, Summary]

    def summary(self, row: str, column: str) -> Summary | None:
        """Return the scores of a pair over its seeds, if it was trained."""
        return self.summaries.get(self.cells.get((row, column), ""))

    @property
    def complete(self) -> tuple[str, ...]:
        """The rows that have every column."""
        return tuple(row for row in self.rows if all(self.summary(row, column) for column in self.columns))


@dataclass(frozen=True)
class Shares:
    """Parts of the sum of squares of a balanced table, which make 1 together.

    ``rows`` and ``columns`` is what each axis explains by itself, averaged over the other,
    ``together`` what only their pairs explain, ``seeds`` the rest. Described, not tested.
    """

    rows: float
    columns: float
    together: float
    seeds: float


def find_grid(analysis: Analysis) -> Grid | None:
    """Return the table of an experiment in which two axes vary, each over three values or more."""
    record = analysis.frames.record
    values: dict[str, dict[str, None]] = {}
    for axes in [*(variant.axes for variant in record.variants), *(excluded.axes for excluded in record.excluded)]:
        for axis, value in axes.items():
            values.setdefault(axis, {})[label(value)] = None
    varied = [axis for axis, known in values.items() if len(known) > 1]
    if len(varied) != 2 or min(len(values[axis]) for axis in varied) < LEAST_VALUES:
        return None
    row, column = varied

    def pair(variant: VariantRecord | ExcludedRecord) -> tuple[str, str]:
        return label(variant.axes.get(row)), label(variant.axes.get(column))

    cells = {pair(variant): variant.slug for variant in record.variants}
    if len(cells) < len(values[row]) + len(values[column]):  # a star, and no table
        return None
    reasons = {pair(excluded): excluded.reason for excluded in record.excluded}
    shown = {slug: analysis.summaries[slug] for slug in analysis.ranked}
    sign = -1.0 if higher_is_better(analysis.metric) else 1.0

    def ordered(names: Sequence[str], at: int) -> tuple[str, ...]:
        def place(name: str) -> float:
            means = [shown[slug].mean for key, slug in cells.items() if key[at] == name and slug in shown]
            return sign * median(means) if means else float("inf")

        return tuple(sorted(names, key=place))

    return Grid((row, column), ordered(list(values[row]), 0), ordered(list(values[column]), 1), cells, reasons, shown)


def shares(grid: Grid, frames: Frames, metric: str) -> Shares | None:
    """Split what the scores of complete rows differ by; None where fewer than two are complete.

    Every cell counts with the seeds that all of them have.
    """
    rows = grid.complete
    scores = [[frames.scores(grid.cells[row, column], metric) for column in grid.columns] for row in rows]
    seeds = sorted(set.intersection(*(set(one) for line in scores for one in line))) if rows else []
    if len(rows) < 2 or len(seeds) < 2:
        return None
    table = np.array([[[one[seed] for seed in seeds] for one in line] for line in scores])
    cell = table.mean(-1)
    row, column, mean = cell.mean(1), cell.mean(0), cell.mean()
    total = ((table - mean) ** 2).sum()
    if total == 0:
        return None
    count = len(seeds)
    parts = (
        ((row - mean) ** 2).sum() * cell.shape[1] * count,
        ((column - mean) ** 2).sum() * cell.shape[0] * count,
        ((cell - row[:, None] - column[None, :] + mean) ** 2).sum() * count,
        ((table - cell[..., None]) ** 2).sum(),
    )
    return Shares(*(float(part / total) for part in parts))
