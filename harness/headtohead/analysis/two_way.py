"""Two-way tables: the best combinations of two crossed axes, and the variance that each axis explains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.best import compare_variants
from headtohead.analysis.scores import Scores, Side
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.statistics.best import BestComparison
from headtohead.statistics.paired_tests import Summary, summarise
from headtohead.storage.experiment import MarginRecord
from headtohead.storage.metrics import label, span

Cell = tuple[str, str]
"""The labels of the row and the column of a combination."""

MIN_VALUES = 3
"""Minimum number of values of each axis of a table."""


class VarianceShares(NamedTuple):
    """Fractions of the sum of squares of the scores of all combinations; they sum to 1.

    ``rows`` and ``columns`` are the axes by themselves, ``interaction`` is what they have only together, and ``seeds``
    the variance within combinations. The fractions are descriptive; they are not tested.
    """

    rows: float
    columns: float
    interaction: float
    seeds: float


@dataclass(frozen=True)
class Combination:
    """A scored combination; ``comparison`` is None with fewer than two seeds."""

    row: str
    column: str
    summary: Summary
    comparison: BestComparison | None

    @property
    def name(self) -> str:
        """The values of both axes."""
        return f"{self.row} with {self.column}"


@dataclass(frozen=True)
class TwoWayResult:
    """The answer to the question of a two-way table.

    Attributes:
        axes: The axes of rows and columns.
        rows: Labels of the row values, best first by the median of their cells.
        columns: Labels of the column values, in the same order.
        cells: The mean and interval over the runs of the ranked pairs that did not collapse.
        ranking: The scored combinations, best first.
        margin: The margin of the tests of equivalence, or None.
        shares: Fractions of variance, or None for fewer than two seeds or equal scores.
    """

    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[Cell, Summary]
    ranking: tuple[Combination, ...]
    margin: MarginRecord | None
    shares: VarianceShares | None


def two_way(scores: Scores) -> TwoWayResult | None:
    """Return the result of an experiment in which exactly two axes vary; None for others, or without scores.

    Each axis needs at least ``MIN_VALUES`` values. The axis ``data`` has no table, because scores on different data are
    not compared. Collapsed runs are left out.
    """
    frames, metric, sign, record = scores.frames, scores.metric, scores.sign, scores.frames.record
    values: dict[str, dict[str, None]] = {}
    for axes in [*(variant.axes for variant in record.variants), *(excluded.axes for excluded in record.excluded)]:
        for axis, value in axes.items():
            values.setdefault(axis, {})[label(value)] = None
    varied = [axis for axis, labels in values.items() if len(labels) > 1]
    if len(varied) != 2 or {DATA_AXIS, SIZE_AXIS} & {*varied} or min(len(values[axis]) for axis in varied) < MIN_VALUES:
        return None
    row, column = varied
    slugs = {(label(found.axes.get(row)), label(found.axes.get(column))): found.slug for found in record.variants}
    healthy = {cell: scores.healthy(Side(slug, metric)) for cell, slug in slugs.items() if slug in scores.ranked}
    scored = {cell: slugs[cell] for cell, own in healthy.items() if own}
    if not scored or len(slugs) < len(values[row]) + len(values[column]):  # one_at_a_time, not a product
        return None
    cells = {cell: summarise([*healthy[cell].values()], span(metric)) for cell in scored}

    def ordered(axis: str, side: int) -> tuple[str, ...]:
        def sort_key(name: str) -> float:
            means = [summary.mean for cell, summary in cells.items() if cell[side] == name]
            return -sign * median(means) if means else math.inf

        return tuple(sorted(values[axis], key=sort_key))

    compared = compare_variants(scores, scored.values())
    ranking = [Combination(*cell, cells[cell], compared.get(frames.trained(slug))) for cell, slug in scored.items()]
    ranking.sort(key=lambda combination: -sign * combination.summary.mean)
    return TwoWayResult(
        axes=(row, column),
        rows=ordered(row, 0),
        columns=ordered(column, 1),
        cells=cells,
        ranking=tuple(ranking),
        margin=record.margins.get(metric) if scores.margin(metric) else None,
        shares=variance_shares({cell: healthy[cell] for cell in scored}),
    )


def variance_shares(scores: Mapping[Cell, Mapping[int, float]]) -> VarianceShares | None:
    """Return the variance decomposition of scored cells, or None for fewer than two rows, columns or seeds.

    Cells may be missing. The fraction of an axis is the mean of its sums of squares before and after the other axis
    (R. H. Lindeman, P. F. Merenda and R. Z. Gold, 1980); without gaps, both are equal. Only seeds that all cells have
    are used.

    Args:
        scores: Scores by cell and seed.
    """
    sides = [sorted({cell[side] for cell in scores}) for side in (0, 1)]
    seeds = sorted(set.intersection(*map(set, scores.values()))) if scores else []
    if min(*map(len, sides), len(seeds)) < 2:
        return None
    values = np.array([[by_seed[seed] for seed in seeds] for by_seed in scores.values()])
    rows, columns = (
        np.array([[float(cell[side] == value) for value in sides[side]] for cell in scores]) for side in (0, 1)
    )
    means, mean = values.mean(axis=1), values.mean()
    total = float(((values - mean) ** 2).sum())
    if total == 0:
        return None

    def explained(design: NDArray[np.float64]) -> float:
        fitted = design @ np.linalg.lstsq(design, means, rcond=None)[0]
        return len(seeds) * float(((fitted - mean) ** 2).sum()) / total

    of_rows, of_columns, of_both = explained(rows), explained(columns), explained(np.hstack([rows, columns]))
    of_cells = len(seeds) * float(((means - mean) ** 2).sum()) / total
    return VarianceShares(
        rows=(of_rows + of_both - of_columns) / 2,
        columns=(of_columns + of_both - of_rows) / 2,
        interaction=max(0.0, of_cells - of_both),
        seeds=1 - of_cells,
    )
