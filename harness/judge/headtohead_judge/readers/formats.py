"""What a reader is: the files that it recognises, and the rows of a table of scores that it makes of them.

A reader is a module of this package and an entry of a list in `headtohead_judge.readers`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import load_json, read_bytes

if TYPE_CHECKING:
    import pandas as pd

Rows = list[dict[str, Any]]
"""Rows of a table of scores; values are texts as the file has them."""

HAS_STEPS = "has_steps"
"""Attribute of a table with a row per evaluation, whose column ``step`` is the step."""

HIGHER_IS_BETTER = "higher_is_better"
"""Attribute of a table whose file states the direction of metrics: whether higher is better, by the metric's name."""

CRASHED = "crashed"
"""State of a run whose score does not count."""


@dataclass(frozen=True)
class TableFormat:
    """Tables of a program, which are recognised by the names of their columns.

    Attributes:
        title: The file as its program calls it, such as ``results.tsv of autoresearch``.
        columns: Columns that every such table has.
        convert: Returns the table of scores of such a table; the path is that of the file, for errors.
    """

    title: str
    columns: frozenset[str]
    convert: Callable[[pd.DataFrame, Path], pd.DataFrame]


@dataclass(frozen=True)
class DatabaseFormat:
    """SQLite files of a program, which are recognised by the names of their tables.

    Attributes:
        title: The file as its program calls it.
        tables: Tables that every such file has.
        read: Returns the table of scores from a connection that only reads; the path is that of the file, for errors.
    """

    title: str
    tables: frozenset[str]
    read: Callable[[sqlite3.Connection, Path], pd.DataFrame]


@dataclass(frozen=True)
class StoreFormat:
    """Stores with an address and experiments.

    Attributes:
        title: What the address names.
        schemes: Beginnings of the addresses, such as ``https``.
        read: Returns a row per run of an experiment, or with a metric a row per step of it.
    """

    title: str
    schemes: tuple[str, ...]
    read: Callable[[str, str, str | None], pd.DataFrame]


@dataclass(frozen=True)
class FolderFormat:
    """Folders of result files, which are recognised by the names of the files.

    Attributes:
        title: The files as their program calls them.
        patterns: Names of the files, with ``*``.
        read: Returns the rows of some files, with the columns ``variant`` and ``seed``; the second argument is the
            folder. There are none if no file has a result.
    """

    title: str
    patterns: tuple[str, ...]
    read: Callable[[list[Path], Path], Rows]

    def matches(self, file: Path) -> bool:
        """Return whether the name of a file is one of this format."""
        return any(fnmatch(file.name, pattern) for pattern in self.patterns)


def subfolder_or_name(file: Path, folder: Path) -> str:
    """Return the path of the subfolder of a file, or the name of a file directly in the folder."""
    if file.parent == folder:
        return file.stem
    return str(file.parent.relative_to(folder))


def read_json(file: Path, advice: str) -> Any:
    """Return the value of a JSON file, with numbers as the texts that the file has.

    Raises:
        FileNotFoundError: If there is no such file.
        HeadToHeadError: If the file cannot be read, which ends with ``advice``, or is not JSON with unique keys.
    """
    content = read_bytes(file, advice=advice)
    try:
        return load_json(
            content.decode("utf-8-sig"), unique_keys=True, parse_int=str, parse_float=str
        )
    except (ValueError, RecursionError) as error:
        raise HeadToHeadError(f"{file}: not valid JSON ({error})") from error


def unreadable_row(path: Path, number: int, reason: str) -> HeadToHeadError:
    """Return the error about a row of a file, from 1; ``reason`` is what is wrong, then what to do."""
    return HeadToHeadError(f"{path}: row {number}: {reason}")


def sqlite_path(uri: str) -> Path:
    """Return the path of the file of ``sqlite:///FILE``."""
    rest = uri.partition("://")[2]
    return Path(rest.partition("?")[0].removeprefix("/"))
