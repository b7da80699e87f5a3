"""Where scores are read from: a table, a folder of results, or an MLflow store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from headtohead_judge import files
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers.formats import HAS_STEPS, sqlite_path
from headtohead_judge.result_folders import is_result, read_results, result_files


def read_source(source: str, experiment: str | None, metric: str | None) -> pd.DataFrame:
    """Return the table of a file, or of an experiment in an MLflow store.

    Raises:
        HeadToHeadError: If the scores cannot be read, or ``source`` is a store without an experiment, or the reverse.
    """
    is_store = "://" in source
    if is_store != (experiment is not None):
        example = "--experiment NAME with sqlite:///mlflow.db"
        raise HeadToHeadError(
            f"the URI of an MLflow store and --experiment need each other: {example}; got {source}"
        )
    if experiment is None:
        return read_results(Path(source))
    from headtohead_judge.readers.stores import STORES

    scheme = source.partition("://")[0]
    for store in STORES:
        if scheme in store.schemes:
            return store.read(source, experiment, metric)
    titles = " and ".join(store.title for store in STORES)
    raise HeadToHeadError(
        f"{scheme}:// is no readable store; {titles} are: run mlflow server --backend-store-uri URI, "
        "and name its address"
    )


def has_steps(table: pd.DataFrame, source: str) -> bool:
    """Return whether the table of a source has a row per evaluation, with the column ``step``.

    In other tables, a column of this name has no such meaning.
    """
    is_log = table.attrs.get(HAS_STEPS, False) or Path(source).is_dir()
    return is_log and "step" in table.columns


def refuse_overwriting(outputs: Mapping[str, Path], source: str) -> None:
    """Raise a `HeadToHeadError` if a written file is another one, or a file that this or a later command reads.

    Args:
        outputs: The written files by the name of their option.
        source: The scores that are read.
    """
    for (name, path), (other_name, other_path) in itertools.combinations(outputs.items(), 2):
        if files.is_same_file(path, other_path):
            raise HeadToHeadError(
                f"'{path}' of {name} is the file of {other_name}, too; choose another file"
            )
    read_path = _local_path(source)
    if read_path is None:
        return
    folder = Path(os.path.realpath(read_path))
    for name, path in outputs.items():
        if any(files.is_same_file(path, file) for file in result_files(read_path)):
            raise HeadToHeadError(f"'{path}' of {name} is a file with scores; choose another file")
        is_inside = Path(os.path.realpath(path)).is_relative_to(folder)
        if folder.is_dir() and is_inside and is_result(path):
            raise HeadToHeadError(
                f"'{path}' of {name} would be read as a result of {read_path}; choose a file outside of this folder"
            )


def _local_path(source: str) -> Path | None:
    """Return the path of a table, a folder of results or an SQLite database; None for other stores."""
    scheme, separator, _ = source.partition("://")
    if not separator:
        return Path(source)
    if scheme == "sqlite":
        return sqlite_path(source)
    return None
