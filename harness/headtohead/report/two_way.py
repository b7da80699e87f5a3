"""The section on two crossed axes: one table of all their pairs."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import Grid, find_grid, shares
from headtohead.report.blocks import (
    Block,
    BulletList,
    Column,
    Heading,
    Note,
    Paragraph,
    Span,
    Table,
    TableCell,
    TableRow,
)
from headtohead.report.cells import blank
from headtohead.storage.metrics import higher_is_better, readable, show

DARKEST = 62
"""Percent of colour in the best cell, so that its number stays legible."""


def two_way_blocks(analysis: Analysis) -> list[Block]:
    """Return the section, nothing for an experiment that is no table of two axes."""
    grid = find_grid(analysis) if analysis.path is None else None
    if grid is None:
        return []
    metric, (row_axis, column_axis) = readable(analysis.metric), grid.axes
    blocks: list[Block] = [
        Heading(2, "Every pair", "pairs", "Every pair"),
        Paragraph(
            f"{metric[:1].upper()}{metric[1:]} of every {row_axis} with every {column_axis}: mean and half of the 95 % "
            "interval over seeds. Darker is better; rows and columns stand by the median of the cells they have, best "
            "first. Cells are described; what is tested is under Axis by axis and Variants.",
            "note",
        ),
        two_way_table(analysis, grid),
    ]
    sentences = _sentences(analysis, grid)
    return [*blocks, BulletList(sentences)] if sentences else blocks


def two_way_table(analysis: Analysis, grid: Grid) -> Table:
    """Return the scores of all pairs, best first, the better the darker."""
    means = [summary.mean for summary in grid.summaries.values()]
    span = (min(means), max(means)) if means else (0.0, 0.0)
    rows = (
        TableRow(
            (TableCell(Span(row, "strong")), *(_cell(analysis, grid, row, column, span) for column in grid.columns))
        )
        for row in grid.rows
    )
    return Table((Column("", align="left"), *map(Column, grid.columns)), tuple(rows), grid=True)


def _cell(analysis: Analysis, grid: Grid, row: str, column: str, span: tuple[float, float]) -> TableCell:
    summary, metric = grid.summary(row, column), analysis.metric
    if summary is None:
        slug = grid.cells.get((row, column), "")
        return blank(grid.reasons.get((row, column)) or analysis.withheld.get(slug, ""))
    low, high = span
    part = (summary.mean - low) / (high - low) if high > low else 0.0
    part = part if higher_is_better(metric) else 1 - part
    mean = show(summary.mean, metric)
    interval = f"± {show((summary.high - summary.low) / 2, metric)}" if summary.n > 1 else ""
    return TableCell(
        mean,
        (Note(interval),) if interval else (),
        tooltip=f"{row} · {column}: {mean} {interval}, {summary.n} seeds",
        shade=round(DARKEST * part),
    )


def _sentences(analysis: Analysis, grid: Grid) -> tuple[str, ...]:
    """Return how far either axis decides the score by itself, and what is left out."""
    sentences = []
    split = shares(grid, analysis.frames, analysis.metric)
    rows, columns = grid.axes
    if split:
        whole = len(grid.complete) == len(grid.rows)
        of = "" if whole else f" Of the {len(grid.complete)} rows without a gap."
        sentences.append(
            f"Of all that the scores differ by, {_percent(split.columns)} goes with {columns} "
            f"alone, {_percent(split.rows)} with {rows} alone, {_percent(split.together)} "
            f"with their pairing, {_percent(split.seeds)} with the seed.{of}"
        )
    if count := len(grid.reasons):
        sentences.append(
            f"{count} pair{'s' * (count != 1)} of {len(grid.rows)} × {len(grid.columns)} "
            f"{'are' if count != 1 else 'is'} left out, with the reason under Runs."
        )
    return tuple(sentences)


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.005 else "less than 1 %"
