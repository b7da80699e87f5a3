"""Reading a corpus by name, and the data_hash of its pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.dataset import Dataset, Pair
from headtohead.plugins.entry import Options
from headtohead.schema.run_config import NOTHING_HELD_OUT


def hash_pairs(pairs: Iterable[Pair]) -> str:
    """Return a sha256 over text, group and split of the pairs, in order."""
    digest = hashlib.sha256()
    for pair in pairs:
        fields = (pair.source, pair.target, pair.group, pair.split or "")
        digest.update("\x1f".join(fields).encode("utf-8", "surrogatepass") + b"\x1e")
    return digest.hexdigest()


def dataset_options(name: str, dataset: type[Dataset], given: Mapping[str, Any]) -> Options:
    """Validate a dataset's options.

    Raises:
        HeadToHeadError: For an unknown option, with the nearest name, or a wrong value.
    """
    try:
        return dataset.Options(**given)
    except ValidationError as error:
        path, message = format_validation_error(error, dataset.Options, given)
        place = f"{name}: {dotted(path)}" if path else name
        raise HeadToHeadError(f"{place}: {message}") from error


def split_name(name: str, dataset: type[Dataset], asked: str | None) -> str:
    """Return the split that is asked for, or the dataset's first.

    Raises:
        HeadToHeadError: If the dataset does not offer it, with the nearest name.
    """
    if asked is None:
        return dataset.splits[0]
    known = (*dataset.splits, NOTHING_HELD_OUT)
    if asked not in known:
        raise HeadToHeadError(f"{name} has no split '{asked}'{nearest(asked, known)}")
    return asked


def loaded_split(dataset: type[Dataset], split: str) -> str:
    """Return the split that the dataset itself is asked for."""
    return split if split in dataset.splits else dataset.splits[0]
