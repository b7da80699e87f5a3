"""Output of commands: every text passes through `echo` or `echo_json`, which escape hidden characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import IO, Any

import click

from headtohead_judge.colours import coloured, has_colours
from headtohead_judge.escaping import json_text, markdown_escape, single_line
from headtohead_judge.layout import broken, table_lines


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument as one line, broken between words on a terminal; without arguments, an empty line.

    Line breaks and control characters inside a line come from files or servers and are escaped.
    """
    width = terminal_width(sys.stderr if err else sys.stdout)
    for line in lines or ("",):
        _print(broken(single_line(line), width), err=err)


def echo_on_terminal(line: str) -> bool:
    """Print a line if the output is a terminal, for a user who waits for the rest; return whether it was printed."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    if is_terminal:
        echo(line)
    return is_terminal


def echo_text(text: str) -> None:
    """Print a text of several lines that headtohead has laid out."""
    _print(single_line(line) for line in text.removesuffix("\n").split("\n"))


def terminal_width(stream: IO[Any] | None) -> int | None:
    """Return the number of columns of a terminal, which COLUMNS overrides; None for a pipe or a file."""
    if stream is None or not stream.isatty():  # None: closed by the shell
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def _print(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines that are escaped and laid out."""
    stream = sys.stderr if err else sys.stdout
    colours = stream is not None and has_colours(stream)
    for line in lines:
        click.echo(coloured(line) if colours else line, err=err, color=colours)


def echo_json(value: Any) -> None:
    """Print JSON whose values are exact."""
    click.echo(json_text(value, indent=1))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[int] = ()
) -> None:
    """Print a table for the width of the terminal; ``right`` holds the indices of right-aligned columns."""
    _print(table_lines(columns, rows, right, terminal_width(sys.stdout)))


def print_verdicts(
    heading: str, rows: Sequence[Mapping[str, str]], lines: Sequence[str], *, is_markdown: bool
) -> None:
    """Print a table of verdicts below its heading, and lines below the table, each after an empty line.

    Args:
        heading: The text above the table.
        rows: Cells by column, at least one row; the variant is the first column, the verdict the last.
        lines: The texts below the table.
        is_markdown: Whether heading, table and lines are blocks of Markdown.
    """
    columns = [*rows[0]]
    cells = [[*row.values()] for row in rows]
    if is_markdown:
        table = markdown_table(columns, cells, left=("variant", "verdict"))
        blocks = [markdown_escape(heading), table]
        blocks += [markdown_escape(line) for line in lines]
        echo_text("\n\n".join(blocks) + "\n")
        return
    echo(heading, "")
    print_table(columns, cells, right=range(1, len(columns) - 1))
    for line in lines:
        echo("", line)


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
