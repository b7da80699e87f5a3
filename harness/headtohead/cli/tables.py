"""Tables: drawn by rich on a terminal, else untruncated aligned lines."""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence

from headtohead.cli.output import echo
from headtohead.escaping import single_line


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()) -> None:
    """Print a table; ``right`` holds the indices of right-aligned columns."""
    columns = [single_line(column) for column in columns]
    rows = [[single_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, rows, right)
        return
    echo(*plain_lines(columns, rows, right))


def plain_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Return the lines of a table; each column is as wide as its widest cell."""
    table = [columns, *rows]
    widths = [max(len(row[number]) for row in table) for number in range(len(columns))]
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        justify = "right" if number in right else "left"
        table.add_column(Text(column), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
