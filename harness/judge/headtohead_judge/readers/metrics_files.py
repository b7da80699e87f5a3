"""Folders of ``metrics.json``: ``VARIANT/SEED/metrics.json``, as training scripts and DVC write them.

A file has an object of numbers; objects in it are joined by ``/``, such as ``val/loss``. ``variant`` and ``seed`` in
the object replace the names of the folders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.readers.formats import FolderFormat, Rows, read_json

MAX_DEPTH = 10


def read(files: list[Path], folder: Path) -> Rows:
    """Return a row per file.

    Raises:
        HeadToHeadError: If a file has no object of numbers, or names neither variant nor seed.
    """
    return [_row(file, folder) for file in files]


def _row(file: Path, folder: Path) -> dict[str, Any]:
    record = read_json(file, advice="name a folder of readable results")
    if not isinstance(record, dict):
        raise HeadToHeadError(f'{file}: not an object of metrics such as {{"accuracy": 0.81}}')
    values = dict(_flat(record, file))
    *variant, seed = ("", *file.parent.relative_to(folder).parts)
    values.setdefault("variant", "/".join(variant[1:]))
    values.setdefault("seed", seed)
    if not values["variant"] or not values["seed"]:
        raise HeadToHeadError(
            f"{file}: no variant and seed; store it as VARIANT/SEED/{file.name}, or add the keys variant and seed"
        )
    return values


def _flat(record: Mapping[str, Any], file: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of an object and of the objects in it, with their joined names; lists are left out."""
    for name, value in record.items():
        if isinstance(value, dict):
            if prefix.count("/") == MAX_DEPTH:
                raise HeadToHeadError(f"{file}: '{prefix}{name}' is nested too deep; flatten it")
            yield from _flat(value, file, f"{prefix}{name}/")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value


METRICS_FILES = FolderFormat("folders VARIANT/SEED/metrics.json", ("metrics.json",), read)
