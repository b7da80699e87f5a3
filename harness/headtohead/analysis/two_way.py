"""Two-way tables: the best combinations of two crossed axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headtohead.analysis.best import Compare
from headtohead.analysis.scores import Scores
from headtohead.config.clauses import with_preposition
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.storage.experiment import ExperimentRecord, MarginRecord
from headtohead.storage.metrics import span
from headtohead_judge.best import BestComparison
from headtohead_judge.contrast import Side
from headtohead_judge.paired_tests import Summary, summarise

Cell = tuple[str, str]
"""The phrases of the row and the column of a combination."""

MIN_VALUES = 3
"""Minimum number of values of each axis of a table."""


@dataclass(frozen=True)
class Combination:
    """A ranked combination; ``is_best``: it has the scores of the best mean in every seed.

    ``comparison`` is None if two combinations share fewer than two seeds.
    """

    row: str
    column: str
    summary: Summary
    comparison: BestComparison | None
    is_best: bool

    @property
    def name(self) -> str:
        """The values of both axes."""
        return f"{self.row} {with_preposition(self.column)}"


@dataclass(frozen=True)
class TwoWayResult:
    """The answer to the question of a two-way table.

    Attributes:
        axes: The axes of rows and columns.
        rows: Phrases of the row values, best first by the median of their cells.
        columns: Phrases of the column values, in the same order.
        cells: The mean and interval over the runs of the ranked pairs that did not collapse.
        ranking: The scored combinations, best first.
        margin: The margin within which a combination is equivalent to the best, or None.
    """

    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[Cell, Summary]
    ranking: tuple[Combination, ...]
    margin: MarginRecord | None


def two_way(scores: Scores, compare: Compare) -> TwoWayResult | None:
    """Return the ranking of the pairs of two crossed axes; None for other experiments.

    Exactly two axes must vary, each with at least ``MIN_VALUES`` values, those of excluded combinations included;
    neither is ``data`` or ``size``, whose scores are not compared. The design must have at least as many pairs as both
    axes together have values; one that varies one axis at a time has fewer. At least one pair must be ranked with a
    score. Collapsed runs are left out.

    Args:
        scores: The scores of the study.
        compare: `compare_variants` of these scores.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    record, metric = scores.frames.record, scores.metric
    values = _varied_values(record)
    if len(values) != 2 or {DATA_AXIS, SIZE_AXIS}.intersection(values):
        return None
    (row_axis, row_values), (column_axis, column_values) = values.items()
    if min(len(row_values), len(column_values)) < MIN_VALUES:
        return None
    slug_of: dict[Cell, str] = {}
    for variant in record.variants:
        cell = variant.phrase(row_axis), variant.phrase(column_axis)
        slug_of[cell] = variant.slug
    if len(slug_of) < len(row_values) + len(column_values):  # one_at_a_time
        return None

    scores_of: dict[Cell, dict[int, float]] = {}  # by seed, of the ranked cells
    for cell, slug in slug_of.items():
        by_seed = scores.healthy(Side(slug, metric))
        if by_seed and slug in scores.ranked:
            scores_of[cell] = by_seed
    if not scores_of:
        return None

    cells = {
        cell: summarise([*by_seed.values()], span(metric)) for cell, by_seed in scores_of.items()
    }
    comparisons = compare(frozenset(slug_of[cell] for cell in cells))
    best = max(cells, key=lambda cell: scores.sign * cells[cell].mean)
    ranking = []
    for cell, summary in cells.items():
        comparison = comparisons.get(scores.frames.trained(slug_of[cell]))
        is_best = scores_of[cell] == scores_of[best]
        ranking.append(Combination(*cell, summary, comparison, is_best))
    ranking.sort(
        key=lambda combination: (not combination.is_best, -scores.sign * combination.summary.mean)
    )
    margin = record.margins.get(metric)
    if not scores.margin(metric, [slug_of[best]]):  # no verdict can use it
        margin = None
    return TwoWayResult(
        axes=(row_axis, column_axis),
        rows=_best_first(row_values, 0, cells, scores.sign),
        columns=_best_first(column_values, 1, cells, scores.sign),
        cells=cells,
        ranking=tuple(ranking),
        margin=margin,
    )


def _varied_values(record: ExperimentRecord) -> dict[str, list[str]]:
    """Return the phrases of the values of each axis that varies, also in excluded combinations."""
    values: dict[str, dict[str, None]] = {}
    combinations = [variant.axes for variant in record.variants]
    combinations += [excluded.axes for excluded in record.excluded]
    for axes in combinations:
        for axis, value in axes.items():
            values.setdefault(axis, {})[record.phrase(axis, value)] = None
    return {axis: list(labels) for axis, labels in values.items() if len(labels) > 1}


def _best_first(
    labels: Sequence[str], side: int, cells: Mapping[Cell, Summary], sign: float
) -> tuple[str, ...]:
    """Return the labels of the rows (side 0) or columns (side 1), best first by the median of their cells."""

    def sort_key(label: str) -> float:
        means = [summary.mean for cell, summary in cells.items() if cell[side] == label]
        return -sign * median(means) if means else math.inf

    return tuple(sorted(labels, key=sort_key))
