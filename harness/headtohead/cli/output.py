"""Output of the commands: every text passes through `echo` or `echo_json`, which escape hidden characters."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headtohead.errors import HeadToHeadError
from headtohead.escaping import json_text, single_line

printed: list[str] = []
"""The lines that the command has printed to standard output."""


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument as one line; without arguments, an empty line.

    Line breaks and control characters inside a line come from files or servers and are escaped.
    """
    for line in map(single_line, lines or ("",)):
        click.echo(line, err=err)
        if not err:
            printed.append(line)


def echo_text(text: str) -> None:
    """Print a text of several lines that headtohead has laid out."""
    echo(*text.removesuffix("\n").split("\n"))


def echo_json(value: Any) -> None:
    """Print JSON whose values are exact."""
    printed.append(json_text(value, indent=1))
    click.echo(printed[-1])


@contextmanager
def output_file(option: str, path: Path) -> Iterator[None]:
    """Raise a `HeadToHeadError` that names the option if the block cannot write its file."""
    try:
        yield
    except OSError as error:
        raise HeadToHeadError(f"{option} {path}: {error.strerror}; choose another file") from error


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()) -> None:
    """Print a table; ``right`` holds the indices of right-aligned columns."""
    columns = [single_line(column) for column in columns]
    rows = [[single_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        echo("  ".join(cells).rstrip())
