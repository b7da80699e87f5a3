"""The section on the single changes between two configurations."""

from __future__ import annotations

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.study import Analysis
from headtohead.config.labels import text
from headtohead.report.blocks import Block, CellNote, Column, DataTable, Heading, Paragraph, TableCell, TableRow
from headtohead.report.cells import blank, difference_cell, verdict_cell
from headtohead.storage.metrics import readable


def change_blocks(analysis: Analysis) -> list[Block]:
    """Return the section; empty without a design between two configurations."""
    added, taken = ({str(c.axis): c for c in family.contrasts} for family in (analysis.added, analysis.taken))
    if not added and not taken:
        return []
    record, by_slug = analysis.frames.record, analysis.frames.by_slug
    total = analysis.variants.contrasts[0]
    start, end = by_slug[total.right], by_slug[total.left]
    columns = (
        Column("change", align="left"),
        Column(f"added to\n{start.title}"),
        Column("verdict", align="left"),
        Column(f"taken from\n{end.title}"),
        Column("verdict", align="left"),
    )
    rows = [
        TableRow(
            (
                TableCell(name, (CellNote(f"{text(start.axes[name])} → {text(end.axes[name])}", "interval wrap"),)),
                *_cells(added.get(name)),
                *_cells(taken.get(name)),
            )
        )
        for name in record.axes
    ]
    whole = TableRow((TableCell("all changes"), *_cells(total), blank(), blank()), emphasised=True)
    return [
        Heading(2, "Change by change", "changes", "Change by change"),
        Paragraph(
            f"The difference in {readable(analysis.metric)} from each single change between {start.title} and "
            f"{end.title}, paired by seed. Added: {start.title} with the change minus {start.title}. Taken: "
            f"{end.title} minus {end.title} without the change. Each column is a family of its own for Holm's "
            "correction. A change with an effect in only one of the columns depends on other changes.",
            "note",
        ),
        DataTable(columns, (*rows, whole)),
    ]


def _cells(contrast: Contrast | None) -> tuple[TableCell, TableCell]:
    """Return the difference and the verdict; None is a change that is incompatible by itself."""
    if contrast is None:
        return blank("incompatible"), TableCell("excluded")
    return difference_cell(contrast), verdict_cell(contrast)
