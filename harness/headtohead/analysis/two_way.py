"""Two-way tables: the scores of two crossed axes, and the variance that each axis explains."""

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

MIN_VALUES = 3
"""Minimum number of values of each axis of a table."""


@dataclass(frozen=True)
class TwoWayTable:
    """The scores of all pairs of values of two axes.

    ``rows`` and ``columns`` are labels of values, best first by the median of their cells. ``cells`` holds the
    slug of a pair's variant, ``reasons`` the reason why a pair is excluded.
    """

    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    reasons: Mapping[tuple[str, str], str]
    summaries: Mapping[str, Summary]

    def summary(self, row: str, column: str) -> Summary | None:
        """Return the summary over seeds of a pair, or None if it is not ranked."""
        return self.summaries.get(self.cells.get((row, column), ""))

    @property
    def complete(self) -> tuple[str, ...]:
        """The rows with a score in every column."""
        return tuple(row for row in self.rows if all(self.summary(row, column) for column in self.columns))


@dataclass(frozen=True)
class VarianceParts:
    """Fractions of the total sum of squares of a balanced table; they sum to 1.

    ``rows`` and ``columns`` are the main effects of the axes, ``interaction`` is their interaction and ``seeds``
    the variance within cells. The fractions are descriptive; they are not tested.
    """

    rows: float
    columns: float
    interaction: float
    seeds: float


def find_two_way_table(analysis: Analysis) -> TwoWayTable | None:
    """Return the table of an experiment in which exactly two axes vary, or None.

    Each axis needs at least ``MIN_VALUES`` values.
    """
    record = analysis.frames.record
    values: dict[str, dict[str, None]] = {}
    for axes in [*(variant.axes for variant in record.variants), *(excluded.axes for excluded in record.excluded)]:
        for axis, value in axes.items():
            values.setdefault(axis, {})[label(value)] = None
    varied = [axis for axis, labels in values.items() if len(labels) > 1]
    if len(varied) != 2 or min(len(values[axis]) for axis in varied) < MIN_VALUES:
        return None
    row, column = varied

    def pair(variant: VariantRecord | ExcludedRecord) -> tuple[str, str]:
        return label(variant.axes.get(row)), label(variant.axes.get(column))

    cells = {pair(variant): variant.slug for variant in record.variants}
    if len(cells) < len(values[row]) + len(values[column]):  # one_at_a_time, not a product
        return None
    reasons = {pair(excluded): excluded.reason for excluded in record.excluded}
    summaries = {slug: analysis.summaries[slug] for slug in analysis.ranked}
    sign = -1.0 if higher_is_better(analysis.metric) else 1.0

    def ordered(names: Sequence[str], side: int) -> tuple[str, ...]:
        def sort_key(name: str) -> float:
            means = [summaries[slug].mean for key, slug in cells.items() if key[side] == name and slug in summaries]
            return sign * median(means) if means else float("inf")

        return tuple(sorted(names, key=sort_key))

    return TwoWayTable(
        (row, column), ordered(list(values[row]), 0), ordered(list(values[column]), 1), cells, reasons, summaries
    )


def variance_parts(table: TwoWayTable, frames: Frames, metric: str) -> VarianceParts | None:
    """Return the variance decomposition of the complete rows, or None for fewer than two rows or seeds.

    Only seeds that all cells have are used.
    """
    rows = table.complete
    scores = [[frames.scores(table.cells[row, column], metric) for column in table.columns] for row in rows]
    seeds = sorted(set.intersection(*(set(cell) for line in scores for cell in line))) if rows else []
    if len(rows) < 2 or len(seeds) < 2:
        return None
    values = np.array([[[cell[seed] for seed in seeds] for cell in line] for line in scores])
    cell_means = values.mean(-1)
    row_means, column_means, mean = cell_means.mean(1), cell_means.mean(0), cell_means.mean()
    total = ((values - mean) ** 2).sum()
    if total == 0:
        return None
    count = len(seeds)
    parts = (
        ((row_means - mean) ** 2).sum() * cell_means.shape[1] * count,
        ((column_means - mean) ** 2).sum() * cell_means.shape[0] * count,
        ((cell_means - row_means[:, None] - column_means[None, :] + mean) ** 2).sum() * count,
        ((values - cell_means[..., None]) ** 2).sum(),
    )
    return VarianceParts(*(float(part / total) for part in parts))
