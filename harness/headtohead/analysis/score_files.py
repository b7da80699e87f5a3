"""Read a table of scores from a CSV, TSV, JSON Lines or Parquet file."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from headtohead.errors import HeadToHeadError
from headtohead.files import read_bytes

FORMATS = {".csv": "CSV", ".tsv": "TSV", ".jsonl": "JSON Lines", ".ndjson": "JSON Lines", ".parquet": "Parquet"}


def read_score_file(path: Path) -> pd.DataFrame:
    """Return the table in a file, whose format follows from its ending.

    Raises:
        HeadToHeadError: If the file is missing, too large or no table.
    """
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise HeadToHeadError(f"{path}: unknown ending '{path.suffix}'; use {', '.join(sorted(FORMATS))}")
    try:
        content = io.BytesIO(read_bytes(path))
    except FileNotFoundError as error:
        raise HeadToHeadError(f"no file {path}") from error
    try:
        table = _parsed(content, ending)
    except ImportError as error:
        raise HeadToHeadError(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from error
    except (ValueError, OSError, OverflowError) as error:  # pandas and pyarrow derive their errors from ValueError
        reason = " ".join(str(error).split()).rstrip(".")
        raise HeadToHeadError(f"{path}: not a {FORMATS[ending]} table ({reason})") from error
    if table.empty:
        raise HeadToHeadError(f"{path}: the table has no rows")
    return table.rename(columns=str)


def _parsed(content: io.BytesIO, ending: str) -> pd.DataFrame:
    if ending == ".parquet":
        return pd.read_parquet(content)
    if ending in (".csv", ".tsv"):
        return pd.read_csv(content, sep="\t" if ending == ".tsv" else ",", encoding="utf-8-sig")
    return pd.read_json(content, lines=True, encoding="utf-8")
