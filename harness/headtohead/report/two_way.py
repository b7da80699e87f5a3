"""The section on two crossed axes: a table of the scores of all pairs of values."""

from __future__ import annotations

from headtohead.analysis.study import Analysis
from headtohead.analysis.two_way import TwoWayTable, find_two_way_table, variance_parts
from headtohead.report.blocks import (
    Block,
    BulletList,
    CellNote,
    Column,
    DataTable,
    Heading,
    Paragraph,
    Span,
    TableCell,
    TableRow,
)
from headtohead.report.cells import blank
from headtohead.storage.metrics import higher_is_better, readable, show

DARKEST = 62
"""Background colour of the best cell in percent; its number remains legible."""


def two_way_blocks(analysis: Analysis) -> list[Block]:
    """Return the section; empty for an experiment without a two-way table."""
    table = find_two_way_table(analysis) if analysis.path is None else None
    if table is None:
        return []
    metric, (row_axis, column_axis) = readable(analysis.metric), table.axes
    blocks: list[Block] = [
        Heading(2, "Every pair", "pairs", "Every pair"),
        Paragraph(
            f"{metric[:1].upper()}{metric[1:]} of every {row_axis} with every {column_axis}: mean and half of the 95 % "
            "interval over seeds. Darker is better. Rows and columns are sorted by the median of their cells, best "
            "first. The cells are descriptive; the sections Axis by axis and Variants contain the tests.",
            "note",
        ),
        two_way_table(analysis, table),
    ]
    sentences = _sentences(analysis, table)
    return [*blocks, BulletList(sentences)] if sentences else blocks


def two_way_table(analysis: Analysis, table: TwoWayTable) -> DataTable:
    """Return the scores of all pairs; better scores have a darker background."""
    means = [summary.mean for summary in table.summaries.values()]
    span = (min(means), max(means)) if means else (0.0, 0.0)
    rows = (
        TableRow(
            (TableCell(Span(row, "strong")), *(_cell(analysis, table, row, column, span) for column in table.columns))
        )
        for row in table.rows
    )
    return DataTable((Column("", align="left"), *map(Column, table.columns)), tuple(rows), grid=True)


def _cell(analysis: Analysis, table: TwoWayTable, row: str, column: str, span: tuple[float, float]) -> TableCell:
    summary, metric = table.summary(row, column), analysis.metric
    if summary is None:
        slug = table.cells.get((row, column), "")
        return blank(table.reasons.get((row, column)) or analysis.withheld.get(slug, ""))
    low, high = span
    fraction = (summary.mean - low) / (high - low) if high > low else 0.0
    fraction = fraction if higher_is_better(metric) else 1 - fraction
    mean = show(summary.mean, metric)
    interval = f"± {show((summary.high - summary.low) / 2, metric)}" if summary.n > 1 else ""
    return TableCell(
        mean,
        (CellNote(interval),) if interval else (),
        tooltip=f"{row} · {column}: {mean} {interval}, {summary.n} seeds",
        shade=round(DARKEST * fraction),
    )


def _sentences(analysis: Analysis, table: TwoWayTable) -> tuple[str, ...]:
    """Return the variance that each axis explains, and the number of excluded pairs."""
    sentences = []
    variance = variance_parts(table, analysis.frames, analysis.metric)
    rows, columns = table.axes
    if variance:
        is_complete = len(table.complete) == len(table.rows)
        scope = "" if is_complete else f" This covers the {len(table.complete)} complete rows."
        sentences.append(
            f"Of the variance of the scores, {columns} explains {_percent(variance.columns)}, {rows} "
            f"{_percent(variance.rows)}, their interaction {_percent(variance.interaction)} and the seed "
            f"{_percent(variance.seeds)}.{scope}"
        )
    if count := len(table.reasons):
        sentences.append(
            f"{count} pair{'s' * (count != 1)} of {len(table.rows)} × {len(table.columns)} "
            f"{'are' if count != 1 else 'is'} excluded; the section Runs lists the reasons."
        )
    return tuple(sentences)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %" if fraction >= 0.005 else "less than 1 %"
