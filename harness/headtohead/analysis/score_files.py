"""Read a table of scores from a CSV, TSV, JSON Lines or Parquet file, with every value as the file has it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead.errors import HeadToHeadError
from headtohead.files import read_bytes

FORMATS = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON Lines", ".ndjson": "JSON Lines", ".parquet": "Parquet"}
PARQUET_SECONDS = 60.0
"""Maximum time for reading a Parquet file."""

Table = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""The names of the columns, and the rows; numbers are text, a missing value is None or empty."""


def read_score_file(path: Path) -> pd.DataFrame:
    """Return the table in a file, whose format follows from its ending.

    Raises:
        HeadToHeadError: If the file is missing, too large or no table.
    """
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise HeadToHeadError(f"{path}: unknown ending '{path.suffix}'; use {', '.join(sorted(FORMATS))}")
    try:
        content = read_bytes(path)
    except FileNotFoundError as error:
        raise HeadToHeadError(f"no file {path}") from error
    try:
        if ending == ".parquet":
            from headtohead.data.child import call_in_child  # imports more than the other formats need

            names, rows = call_in_child(
                f"Parquet file {path}", "headtohead.analysis.parquet_rows:rows", str(path), seconds=PARQUET_SECONDS
            )
        else:
            names, rows = _parsed(content, ending)
    except (ValueError, csv.Error) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise HeadToHeadError(f"{path}: not a {FORMATS[ending]} table ({reason})") from error
    if not rows:
        raise HeadToHeadError(f"{path}: the table has no rows")
    return pd.DataFrame([*rows], columns=[*names], dtype="object")


def _parsed(content: bytes, ending: str) -> Table:
    text = content.decode("utf-8-sig")
    return _json_lines(text) if FORMATS[ending] == "JSON Lines" else _delimited(text, "\t" if ending == ".tsv" else ",")


def _delimited(text: str, separator: str) -> Table:
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if row]
    if not rows:
        raise ValueError("it is empty")
    names, *rows = rows
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(f"row {number} has {len(row)} values for {len(names)} columns")
    return names, rows


def _json_lines(text: str) -> Table:
    records: list[dict[str, Any]] = []
    for line in filter(str.strip, text.split("\n")):
        number = len(records) + 1
        try:
            record = json.loads(
                line, object_pairs_hook=_without_repeats, parse_int=str, parse_float=str, parse_constant=str
            )
        except ValueError as error:
            raise ValueError(f"row {number}: {str(error).partition(': line 1')[0]}") from error
        except RecursionError as error:
            raise ValueError(f"row {number}: nested too deeply") from error
        if not isinstance(record, dict):
            raise ValueError(f"row {number} is not an object")
        records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, [[record.get(name) for name in names] for record in records]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key '{next(name for name in names if names.count(name) > 1)}' twice")
    return found
