"""Read a table of scores, or a folder of results, by the readers of `headtohead_judge.readers`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers import DATABASES, FOLDERS, TABLES
from headtohead_judge.score_files import read_score_file

MAX_FILES = 10_000
DATABASE_ENDINGS = (".db", ".sqlite")


def read_results(path: Path) -> pd.DataFrame:
    """Return the scores of a table, or of a folder of results, with a row per variant and seed and every value as text.

    Raises:
        HeadToHeadError: If the file is no table, the folder has no results, or a reader does not understand a row.
    """
    if path.suffix.lower() in DATABASE_ENDINGS:
        return _read_database(path)
    if not path.is_dir():
        table = read_score_file(path)
        for table_format in TABLES:
            if {*table.columns} >= table_format.columns:
                return table_format.convert(table, path)
        return table
    files = _files(path)
    for folder_format in FOLDERS:
        matching = [file for file in files if folder_format.matches(file)]
        rows = folder_format.read(matching, path) if matching else []
        if rows:
            return pd.DataFrame(rows, dtype="object")
    titles = "; ".join(folder_format.title for folder_format in FOLDERS)
    raise HeadToHeadError(f"no results in the folder {path}; it needs one of: {titles}")


def _read_database(path: Path) -> pd.DataFrame:
    """Return the table of an SQLite file, by the format with its tables."""
    if not path.is_file():
        raise HeadToHeadError(f"no file {path}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = {name for (name,) in database.execute(query)}
            for database_format in DATABASES:
                if tables >= database_format.tables:
                    return database_format.read(database, path)
    except sqlite3.Error as error:
        raise HeadToHeadError(f"{path}: not an SQLite database ({error})") from error
    titles = "; ".join(database_format.title for database_format in DATABASES)
    raise HeadToHeadError(
        f"{path}: unknown tables; it is none of: {titles}; "
        f"an MLflow store is read as sqlite:///{path} with --experiment"
    )


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders."""
    files = []
    for parent, _, names in os.walk(folder):
        files += [Path(parent, name) for name in names]
    if len(files) > MAX_FILES:
        raise HeadToHeadError(
            f"{folder} has {len(files):,} files, more than {MAX_FILES:,}; name a folder in it"
        )
    return sorted(files)


def result_files(path: Path) -> list[Path]:
    """Return the files that `read_results` reads from a path."""
    if not path.is_dir():
        return [path]
    return [file for file in _files(path) if is_result(file)]


def is_result(path: Path) -> bool:
    """Return whether a file in a folder of results is read, from its name."""
    return any(folder_format.matches(path) for folder_format in FOLDERS)
