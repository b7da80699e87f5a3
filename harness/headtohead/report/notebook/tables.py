"""Blocks that several kinds of notebook output use."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from headtohead.report.blocks import Block, BulletList, Column, DataTable, Paragraph, Span, TableCell, TableRow


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()) -> DataTable:
    """Return a table of texts; the columns with an index in ``right`` are right-aligned."""
    columns = tuple(
        Column(heading, align="right" if number in right else "left") for number, heading in enumerate(headings)
    )
    return DataTable(columns, tuple(TableRow(tuple(map(TableCell, row))) for row in rows))


def titled_list(title: str, lines: Iterable[str]) -> list[Block]:
    """Return lines as a list under a bold title; empty without lines."""
    items = tuple(lines)
    return [Paragraph(Span(title, "strong")), BulletList(items)] if items else []
