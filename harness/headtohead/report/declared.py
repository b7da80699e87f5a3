"""The section on the contrasts that the experiment file declares."""

from __future__ import annotations

from headtohead.analysis.contrasts import Contrast
from headtohead.report.blocks import Block, CellNote, Column, DataTable, Heading, Paragraph, TableCell, TableRow
from headtohead.report.cells import difference_cell, show_interval, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent
from headtohead.storage.metrics import readable


def declared_blocks(content: ReportContent) -> list[Block]:
    """Return the section; empty without declared contrasts."""
    family = content.analysis.declared
    if not family.contrasts:
        return []
    expected = any(contrast.expect for contrast in family.contrasts)
    columns = (
        Column("contrast", align="left"),
        Column("metric", align="left"),
        Column("difference"),
        *((Column("expected", align="left"), Column("as expected", align="left")) if expected else ()),
        *verdict_columns(family.tested, "declared contrasts"),
    )
    rows = tuple(
        TableRow(
            (
                TableCell(contrast.name),
                TableCell(readable(contrast.metric)),
                difference_cell(contrast),
                *(_expected(contrast) if expected else ()),
                *verdict_cells(contrast),
            )
        )
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


def _expected(contrast: Contrast) -> tuple[TableCell, TableCell]:
    """Return the expected result with its source, and whether the difference agrees with it."""
    if contrast.expect is None or contrast.agreement is None:
        return TableCell(""), TableCell("")
    found = contrast.agreement
    notes = [show_interval(found.interval, contrast.metric)] if found.interval else []
    return (
        TableCell(contrast.expected, (CellNote(contrast.expect.source, "interval wrap"),)),
        TableCell(found.verdict, tuple(CellNote(note, "details") for note in notes)),
    )
