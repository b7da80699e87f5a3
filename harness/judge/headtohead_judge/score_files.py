"""Read a table of scores from a CSV, TSV, JSON Lines or Parquet file, with every value as the file has it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

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
AUTORESEARCH = {"commit", "val_bpb", "status"}
"""Columns of the ``results.tsv`` of autoresearch, in which a quotation mark is text."""

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
            f"{path}: unknown ending '{path.suffix}'; use {', '.join(sorted(FORMATS))}"
        )
    try:
        content = read_bytes(path, advice="name a readable table of scores")
    except FileNotFoundError as error:
        raise HeadToHeadError(f"no file {path}") from error
    try:
        if ending == ".parquet":
            # A damaged file can end a process by a signal.
            rows = call_in_child(
                f"Parquet file {path}",
                f"{__name__}:parquet_rows",
                str(path),
                seconds=PARQUET_SECONDS,
            )
        elif FORMATS[ending] == "JSON Lines":
            rows = _json_lines(content.decode("utf-8-sig"))
        else:
            rows = _delimited(content.decode("utf-8-sig"), "\t" if ending == ".tsv" else ",")
    except (ValueError, csv.Error, RecursionError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise HeadToHeadError(f"{path}: not a {FORMATS[ending]} table ({reason})") from error
    names, *values = rows
    if not values:
        raise HeadToHeadError(f"{path}: the table has no rows")
    for number, row in enumerate(values, 1):
        longest = max((len(value) for value in row if isinstance(value, str)), default=0)
        if longest > MAX_CHARACTERS:
            raise HeadToHeadError(
                f"{path}: row {number} has a value of {longest:,} characters, more than {MAX_CHARACTERS:,}; remove it"
            )
    return pd.DataFrame(values, columns=names, dtype="object")


def parquet_rows(path: str) -> list[list[Any]]:
    """Return the names of the columns of a Parquet file and its rows; an index without a name is left out."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = {
        index: name
        for index, name in enumerate(table.column_names)
        if not name.startswith("__index_level_")
    }
    _refuse_many_columns(len(columns))
    values = zip(*(map(_text, table.column(index).to_pylist()) for index in columns), strict=True)
    return [[*columns.values()], *map(list, values)]


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    return json.dumps(value) if isinstance(value, int | float) else str(value)


def _refuse_many_columns(number: int) -> None:
    if number > MAX_COLUMNS:
        raise ValueError(
            f"{number:,} columns, more than {MAX_COLUMNS:,}; it needs those of variant, seed and metrics"
        )


def _delimited(text: str, separator: str) -> list[list[str]]:
    is_plain = {*text.partition("\n")[0].strip().split("\t")} >= AUTORESEARCH
    form: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if is_plain else {}
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, **form)
    rows: list[list[str]] = []
    for row in filter(None, lines):
        rows.append(row)
        _refuse_many_columns(len(row))
        if len(row) != len(rows[0]):
            raise ValueError(
                f"line {lines.line_num} has {len(row)} values for {len(rows[0])} columns"
            )
    if not rows:
        raise ValueError("it is empty")
    return rows


def _json_lines(text: str) -> list[list[Any]]:
    records: list[dict[str, Any]] = []
    for line in filter(str.strip, text.split("\n")):
        try:
            record = load_json(
                line,
                unique_keys=True,
                parse_int=str,
                parse_float=str,
                parse_constant=str,
            )
        except ValueError as error:
            raise ValueError(
                f"row {len(records) + 1}: {str(error).partition(': line 1')[0]}"
            ) from error
        if not isinstance(record, dict):
            raise ValueError(f"row {len(records) + 1} is not an object")
        records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    _refuse_many_columns(len(names))
    return [names, *([record.get(name) for name in names] for record in records)]
