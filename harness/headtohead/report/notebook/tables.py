"""Blocks that several cell outputs have."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from headtohead.report.blocks import Block, BulletList, Column, Paragraph, Span, Table, TableCell, TableRow


def text_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()) -> Table:
    """Return texts under their headings; columns whose number is in ``right`` align to the right."""
    columns = tuple(
        Column(heading, align="right" if number in right else "left") for number, heading in enumerate(headings)
    )
    return Table(columns, tuple(TableRow(tuple(map(TableCell, row))) for row in rows))


def titled_list(title: str, lines: Iterable[str]) -> list[Block]:
    """Return lines as a list under a bold title; nothing where there are no lines."""
    items = tuple(lines)
    return [Paragraph(Span(title, "strong")), BulletList(items)] if items else []
