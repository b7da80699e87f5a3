"""Rows of a table with one text per field: TSV, CSV or JSON Lines.

All rows have the same number of fields. A row with another number has a text with a separator, or lacks
a field, so its columns are not those of the other rows. The usual number decides, because each row can
be the wrong one, the first too.
A line with one field is never usual: a table has at least two columns.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headtohead.data.reading import parse_json, read_lines
from headtohead.errors import HeadToHeadError

Format = Literal["tsv", "csv", "jsonl"]

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar"}
SEPARATOR_OF = {"tsv": "\t", "csv": ","}
REMEDIES = {"\t": "set data.format: tsv", ",": "set data.format: csv"}
"""What to do about another separator; without a format of its own, it is to be replaced."""
QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A field as CSV quotes it."""


@dataclass(frozen=True)
class Row:
    """A row that is not empty.

    Args:
        line: Number of its first line, from 1.
        content: A list of fields, or a JSON value; None if it cannot be read.
        problem: What is wrong with the row, as the end of a sentence about its line, or None.
    """

    line: int
    content: Any
    problem: str | None = None


def read_rows(path: Path, form: Format, *, is_guessed: bool) -> list[Row]:
    """Return the rows of a table; those with an unusual number of fields have a problem.

    Args:
        path: The file.
        form: Its format. Tabs are never quoted, fields of CSV can be.
        is_guessed: Whether the name of the file decided the format. A file like another format is
            then refused.

    Raises:
        HeadToHeadError: If the file cannot be read, is not CSV, or looks like another format.
    """
    lines = read_lines(path)
    if is_guessed and form != "jsonl":
        _refuse_other_separators(path, form, lines)
    if is_guessed and form == "tsv":
        _refuse_quotes_of_csv(path, lines)
    return _with_usual_width(PARSERS[form](path, lines))


def _tsv(path: Path, lines: Sequence[str]) -> list[Row]:
    return [Row(number, line.split("\t")) for number, line in enumerate(lines, 1) if line]


def _csv(path: Path, lines: Sequence[str]) -> list[Row]:
    csv.field_size_limit(sys.maxsize)
    # A space before a quotation mark would make the mark a part of the text.
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, skipinitialspace=True)
    rows = []
    first_line = 1
    try:
        for fields in reader:
            if fields not in ([], [""]):
                rows.append(Row(first_line, fields))
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise HeadToHeadError(
            f"file '{path}': the row that begins in line {first_line} is not CSV: {error}; correct its quotation marks"
        ) from error
    return rows


def _jsonl(path: Path, lines: Sequence[str]) -> list[Row]:
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(Row(number, parse_json(line)))
        except json.JSONDecodeError as error:
            rows.append(Row(number, None, f"is not JSON: {error.msg} (column {error.colno})"))
        except ValueError as error:
            rows.append(Row(number, None, f"is refused: {error}"))
        except RecursionError:
            rows.append(Row(number, None, "is nested too deeply"))
    return rows


PARSERS: dict[Format, Callable[[Path, Sequence[str]], list[Row]]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
}


def _with_usual_width(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; lists with another number of fields than most lists have a problem."""
    first_lines: dict[int, int] = {}
    counts = Counter[int]()
    for row in rows:
        if isinstance(row.content, list):
            width = len(row.content)
            first_lines.setdefault(width, row.line)
            counts[width] += 1
    if not counts:
        return list(rows)
    # Of equally frequent widths, the one that occurs first.
    usual = max(counts, key=lambda width: (width > 1, counts[width]))
    checked = []
    for row in rows:
        width = len(row.content) if isinstance(row.content, list) else usual
        if width != usual:
            noun = "field" if width == 1 else "fields"
            problem = f"has {width} {noun}, line {first_lines[usual]} has {usual}"
            row = replace(row, problem=problem)
        checked.append(row)
    return checked


def _refuse_other_separators(path: Path, form: Format, lines: Sequence[str]) -> None:
    """Raise an error if another separator divides every line into the same number of fields.

    Tabs are rare in texts: a file of tabs with another separator in every line is accepted.
    """
    filled = [line for line in lines if line.strip()]
    expected = SEPARATOR_OF[form]
    if len(filled) < 2:
        return
    if form == "tsv" and any(expected in line for line in filled):
        return
    for separator, name in SEPARATORS.items():
        counts = {line.count(separator) for line in filled}
        if separator == expected or len(counts) > 1 or counts == {0}:
            continue
        remedy = REMEDIES.get(separator, f"replace it by a {SEPARATORS[expected]}")
        raise HeadToHeadError(
            f"file '{path}' is read as {form}, but every line has the same number of another "
            f"separator, the {name}; {remedy}, or set data.format: {form} if it belongs to the texts"
        )


def _refuse_quotes_of_csv(path: Path, lines: Sequence[str]) -> None:
    """Raise an error if every quotation mark is one of CSV, which are no part of a text."""
    fields = 0
    marked: list[int] = []  # line numbers of fields with quotation marks
    doubled: list[int] = []
    for number, line in enumerate(lines, 1):
        for field in line.split("\t"):
            if field:
                fields += 1
            if '"' not in field:
                continue
            if not QUOTED.fullmatch(field):
                return
            marked.append(number)
            if '""' in field[1:-1]:
                doubled.append(number)
    are_all_marked = len(marked) == fields > 2
    if not (doubled or are_all_marked):
        return
    first = doubled[0] if doubled else marked[0]
    raise HeadToHeadError(
        f"file '{path}' has texts in the quotation marks of CSV, as in line {first}, which tsv "
        "keeps; remove them, or set data.format: tsv if they belong to the texts"
    )
