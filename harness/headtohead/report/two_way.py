"""The section of a report on two crossed axes: one table of all their pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Grid, find_grid, shares
from headtohead.report.rows import Score
from headtohead.storage.metrics import higher_is_better, show

DARKEST = 62
"""Percent of colour in the best cell, so that its number stays legible."""


@dataclass(frozen=True)
class Cell:
    """One pair: its score, how dark it is drawn in percent, and what pointing at it tells."""

    score: Score
    shade: int
    told: str


@dataclass(frozen=True)
class GridSection:
    """What a report says of a table of pairs."""

    analysis: Analysis
    grid: Grid

    @cached_property
    def lines(self) -> list[tuple[str, list[Cell]]]:
        """The rows with their cells, best first."""
        return [(row, [self._cell(row, column) for column in self.grid.columns]) for row in self.grid.rows]

    @cached_property
    def sentences(self) -> list[str]:
        """How far either axis decides the score by itself, and what is left out."""
        told = []
        split = shares(self.grid, self.analysis.frames, self.analysis.metric)
        rows, columns = self.grid.axes
        if split:
            whole = len(self.grid.complete) == len(self.grid.rows)
            of = "" if whole else f" Of the {len(self.grid.complete)} rows without a gap."
            told.append(
                f"Of all that the scores differ by, {_percent(split.columns)} goes with {columns} "
                f"alone, {_percent(split.rows)} with {rows} alone, {_percent(split.together)} "
                f"with their pairing, {_percent(split.seeds)} with the seed.{of}"
            )
        if self.grid.reasons:
            count = len(self.grid.reasons)
            told.append(
                f"{count} pair{'s' * (count != 1)} of {len(self.grid.rows)} × "
                f"{len(self.grid.columns)} {'are' if count != 1 else 'is'} left out, "
                "with the reason under Runs."
            )
        return told

    @cached_property
    def _range(self) -> tuple[float, float]:
        means = [one.mean for one in self.grid.summaries.values()]
        return (min(means), max(means)) if means else (0.0, 0.0)

    def _cell(self, row: str, column: str) -> Cell:
        summary, metric = self.grid.summary(row, column), self.analysis.metric
        if summary is None:
            slug = self.grid.cells.get((row, column), "")
            reason = self.grid.reasons.get((row, column)) or self.analysis.withheld.get(slug, "")
            return Cell(Score("–", reason=reason), 0, reason)
        low, high = self._range
        part = (summary.mean - low) / (high - low) if high > low else 0.0
        part = part if higher_is_better(metric) else 1 - part
        half = (summary.high - summary.low) / 2
        mean = show(summary.mean, metric)
        interval = f"± {show(half, metric)}" if summary.n > 1 else ""
        told = f"{row} · {column}: {mean} {interval}, {summary.n} seeds"
        return Cell(Score(mean, interval), round(DARKEST * part), told)


def grid_section(analysis: Analysis) -> GridSection | None:
    """Return the section, None for an experiment that is no table."""
    found = find_grid(analysis) if analysis.path is None else None
    return GridSection(analysis, found) if found else None


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.005 else "less than 1 %"
