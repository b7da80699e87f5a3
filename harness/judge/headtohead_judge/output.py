"""Output of commands: every text passes through `echo` or `echo_json`, which escape hidden characters."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any
from unicodedata import east_asian_width

import click

from headtohead_judge.escaping import json_text, markdown_escape, single_line


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument as one line; without arguments, an empty line.

    Line breaks and control characters inside a line come from files or servers and are escaped.
    """
    for line in lines or ("",):
        click.echo(single_line(line), err=err)


def echo_text(text: str) -> None:
    """Print a text of several lines that headtohead has laid out."""
    echo(*text.removesuffix("\n").split("\n"))


def echo_json(value: Any) -> None:
    """Print JSON whose values are exact."""
    click.echo(json_text(value, indent=1))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()
) -> None:
    """Print a table; ``right`` holds the indices of right-aligned columns."""
    echo(*aligned([columns, *rows], right))


def markdown_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Container[str] = ()
) -> str:
    """Return a Markdown table; the columns that are not in ``left`` are right-aligned."""
    rules = ["---" if name in left else "---:" for name in columns]
    lines = [_markdown_row(columns), f"|{'|'.join(rules)}|"]
    lines += [_markdown_row(row) for row in rows]
    return "\n".join(lines)


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = [markdown_escape(cell) for cell in cells]
    return f"| {' | '.join(escaped)} |"


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> Iterator[str]:
    """Yield the rows of a table as lines; ``right`` holds the indices of right-aligned columns."""
    lines = [[single_line(cell) for cell in row] for row in rows]
    widths = []
    for column in zip(*lines, strict=True):
        widths.append(max(_width(cell) for cell in column))
    for line in lines:
        cells = []
        for index, (cell, width) in enumerate(zip(line, widths, strict=True)):
            spaces = " " * (width - _width(cell))
            cells.append(spaces + cell if index in right else cell + spaces)
        yield "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """Return the columns of a text in a terminal; Chinese characters take two."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(character) in "WF" for character in text)
    return len(text) + wide
