"""Read a table of scores from a CSV, TSV, JSON Lines or Parquet file, with every value as the file has it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from headtohead_judge.child import call_in_child
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import load_json, read_bytes

FORMATS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".parquet": "Parquet",
}
UNQUOTED = {"commit", "status", "description"}
"""Columns of tables in which a quotation mark is text, such as the ``results.tsv`` of autoresearch."""

MAX_COLUMNS = 10_000
MAX_CHARACTERS = csv.field_size_limit()
"""Maximum number of characters of a value, in all formats that of the csv module."""

PARQUET_SECONDS = 60.0
"""Maximum time for reading a Parquet file."""


def read_score_file(path: Path) -> pd.DataFrame:
    """Return the table in a file; the ending determines the format, and numbers are text.

    Raises:
        HeadToHeadError: If the file is missing, too large or no table.
    """
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise HeadToHeadError(
            f"{path}: unknown ending '{path.suffix}'; use {', '.join(sorted(FORMATS))} for a table of scores"
        )
    try:
        content = read_bytes(path, advice="name a readable table of scores")
    except FileNotFoundError as error:
        raise HeadToHeadError(f"no file {path}") from error
    try:
        names, *rows = _rows(path, ending, content)
    except (ValueError, csv.Error, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise HeadToHeadError(f"{path}: not a {FORMATS[ending]} table ({reason})") from error
    if not rows:
        raise HeadToHeadError(f"{path}: the table has no rows")
    for number, row in enumerate(rows, 1):
        lengths = [len(value) for value in row if isinstance(value, str)]
        longest = max(lengths, default=0)
        if longest > MAX_CHARACTERS:
            raise HeadToHeadError(
                f"{path}: row {number} has a value of {longest:,} characters, more than {MAX_CHARACTERS:,}; remove it"
            )
    return pd.DataFrame(rows, columns=names, dtype="object")


def _rows(path: Path, ending: str, content: bytes) -> list[list[Any]]:
    """Return the names of the columns of a file, and its rows.

    Raises:
        ValueError: If the content is no table of the format of this ending.
        csv.Error: If a line of CSV is damaged.
        HeadToHeadError: If a Parquet file cannot be read.
    """
    if ending == ".parquet":
        # A damaged file can end a process by a signal.
        reader = f"{__name__}:parquet_rows"
        rows: list[list[Any]] = call_in_child(
            f"Parquet file {path}", reader, str(path), seconds=PARQUET_SECONDS
        )
        return rows
    text = content.decode("utf-8-sig")
    if FORMATS[ending] == "JSON Lines":
        return _json_lines(text)
    return _delimited(text, "\t" if ending == ".tsv" else ",")


def parquet_rows(path: str) -> list[list[Any]]:
    """Return the names of the columns of a Parquet file and its rows; an index without a name is left out."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise HeadToHeadError("Parquet files need pyarrow: run pip install pyarrow") from error

    table = parquet.read_table(path)
    chosen = []
    for index, name in enumerate(table.column_names):
        if not name.startswith("__index_level_"):
            chosen.append((index, name))
    _refuse_many_columns(len(chosen))
    columns = []
    for index, _ in chosen:
        columns.append([_text(value) for value in table.column(index).to_pylist()])
    names = [name for _, name in chosen]
    return [names, *map(list, zip(*columns, strict=True))]


def _text(value: Any) -> Any:
    """Return a value as JSON has it: numbers as text, and other types than text and truth values as text, too."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return json.dumps(value)
    return str(value)


def _refuse_many_columns(number: int) -> None:
    if number > MAX_COLUMNS:
        raise ValueError(
            f"{number:,} columns, more than {MAX_COLUMNS:,}; it needs those of variant, seed and metrics"
        )


SEMICOLONS = "semicolons separate its columns; write commas, and decimal points such as 0.8"


def _delimited(text: str, separator: str) -> list[list[str]]:
    """Return the rows of CSV or TSV without empty ones; raise `ValueError` if a row has another number of values."""
    first_line = text.partition("\n")[0].strip()
    is_unquoted = {*first_line.split("\t")} >= UNQUOTED
    quoting: Literal[0, 3] = csv.QUOTE_NONE if is_unquoted else csv.QUOTE_MINIMAL
    lines = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, strict=True, quoting=quoting
    )
    rows: list[list[str]] = []
    for row in lines:
        if not row:
            continue
        rows.append(row)
        _refuse_many_columns(len(row))
        if len(row) != len(rows[0]):
            if len(rows[0]) == 1 and ";" in first_line:
                raise ValueError(SEMICOLONS)
            raise ValueError(
                f"line {lines.line_num} has {len(row)} values for {len(rows[0])} columns"
            )
    if not rows:
        raise ValueError("it is empty")
    return rows


def _json_lines(text: str) -> list[list[Any]]:
    """Return the names of all keys, and a row per object; numbers are text, and a missing value is None."""
    records: list[dict[str, Any]] = []
    for line in text.split("\n"):
        if line.strip():
            records.append(_json_object(line, len(records) + 1))
    names = {}
    for record in records:
        names.update(dict.fromkeys(record))
    _refuse_many_columns(len(names))
    rows = [[record.get(name) for name in names] for record in records]
    return [[*names], *rows]


def _json_object(line: str, number: int) -> dict[str, Any]:
    """Return the object of a line; raise `ValueError` with its number for other JSON and other text."""
    try:
        record = load_json(
            line, unique_keys=True, parse_int=str, parse_float=str, parse_constant=str
        )
    except ValueError as error:
        reason = str(error).partition(": line 1")[0]
        raise ValueError(f"row {number}: {reason}") from error
    if not isinstance(record, dict):
        raise ValueError(f"row {number} is not an object")
    return record
