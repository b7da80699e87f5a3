"""Two-way tables: the best combinations of two crossed axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from headtohead.analysis.best import compare_variants
from headtohead.analysis.scores import Scores, Side
from headtohead.config.labels import text
from headtohead.planning.variants import DATA_AXIS, SIZE_AXIS
from headtohead.storage.experiment import MarginRecord
from headtohead.storage.metrics import span
from headtohead_judge.best import BestComparison
from headtohead_judge.paired_tests import Summary, summarise

Cell = tuple[str, str]
"""The labels of the row and the column of a combination."""

MIN_VALUES = 3
"""Minimum number of values of each axis of a table."""


@dataclass(frozen=True)
class Combination:
    """A scored combination; no ``comparison`` with fewer than two seeds; ``is_best``: its scores are the best."""

    row: str
    column: str
    summary: Summary
    comparison: BestComparison | None
    is_best: bool

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
    """

    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[Cell, Summary]
    ranking: tuple[Combination, ...]
    margin: MarginRecord | None


def two_way(scores: Scores) -> TwoWayResult | None:
    """Return the result of an experiment in which exactly two axes vary; None for others, or without scores.

    Each axis needs at least ``MIN_VALUES`` values. The axis ``data`` has no table, because scores on different data are
    not compared. Collapsed runs are left out.
    """
    frames, metric, sign, record = scores.frames, scores.metric, scores.sign, scores.frames.record
    values: dict[str, dict[str, None]] = {}
    for axes in [
        *(variant.axes for variant in record.variants),
        *(excluded.axes for excluded in record.excluded),
    ]:
        for axis, value in axes.items():
            values.setdefault(axis, {})[text(value)] = None
    varied = [axis for axis, labels in values.items() if len(labels) > 1]
    if (
        len(varied) != 2
        or {DATA_AXIS, SIZE_AXIS} & {*varied}
        or min(len(values[axis]) for axis in varied) < MIN_VALUES
    ):
        return None
    row, column = varied
    slugs = {
        (text(found.axes.get(row)), text(found.axes.get(column))): found.slug
        for found in record.variants
    }
    healthy = {
        cell: scores.healthy(Side(slug, metric))
        for cell, slug in slugs.items()
        if slug in scores.ranked
    }
    scored = {cell: slugs[cell] for cell, own in healthy.items() if own}
    if not scored or len(slugs) < len(values[row]) + len(
        values[column]
    ):  # one_at_a_time, not a product
        return None
    cells = {cell: summarise([*healthy[cell].values()], span(metric)) for cell in scored}

    def ordered(axis: str, side: int) -> tuple[str, ...]:
        def sort_key(name: str) -> float:
            means = [summary.mean for cell, summary in cells.items() if cell[side] == name]
            return -sign * median(means) if means else math.inf

        return tuple(sorted(values[axis], key=sort_key))

    compared = compare_variants(scores, scored.values())
    first = max(scored, key=lambda cell: sign * cells[cell].mean)
    ranking = [
        Combination(
            *cell, cells[cell], compared.get(frames.trained(slug)), healthy[cell] == healthy[first]
        )
        for cell, slug in scored.items()
    ]
    ranking.sort(
        key=lambda combination: (not combination.is_best, -sign * combination.summary.mean)
    )
    return TwoWayResult(
        axes=(row, column),
        rows=ordered(row, 0),
        columns=ordered(column, 1),
        cells=cells,
        ranking=tuple(ranking),
        margin=record.margins.get(metric) if scores.margin(metric, [slugs[first]]) else None,
    )
