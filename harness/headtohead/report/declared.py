"""The section on the contrasts that the experiment file declares."""

from __future__ import annotations

from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, TableCell, TableRow
from headtohead.report.cells import difference_cell, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent


def declared_blocks(content: ReportContent) -> list[Block]:
    """Return the section; empty without declared contrasts."""
    family = content.analysis.declared
    if not family.contrasts:
        return []
    columns = (
        Column("contrast", align="left"),
        Column(f"difference in {content.metric}"),
        *verdict_columns(family.tested, "declared contrasts"),
    )
    rows = tuple(
        TableRow((TableCell(contrast.name), difference_cell(contrast), *verdict_cells(contrast)))
        for contrast in family.contrasts
    )
    note = (
        "The differences that the experiment file declares, paired by seed. They are a family of their own: Holm's "
        "correction counts no other contrasts."
    )
    return [
        Heading(2, "Declared contrasts", "declared", "Declared contrasts"),
        Paragraph(note, "note"),
        DataTable(columns, rows),
    ]
