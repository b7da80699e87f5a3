"""Hash of a corpus, and the options and split of a dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Dataset, Pair
from headtohead.plugins.entry import Options
from headtohead.schema.run_config import NOTHING_HELD_OUT


def hash_pairs(pairs: Iterable[Pair]) -> str:
    """Return the sha256 of text, group and split of all pairs, in order."""
    digest = hashlib.sha256()
    for pair in pairs:
        fields = (pair.source, pair.target, pair.group, pair.split or "")
        digest.update("\x1f".join(fields).encode("utf-8", "surrogatepass") + b"\x1e")
    return digest.hexdigest()


def dataset_options(name: str, dataset: type[Dataset], given: Mapping[str, Any]) -> Options:
    """Validate the options of a dataset.

    Raises:
        HeadToHeadError: For an unknown option, with the nearest name, or an invalid value.
    """
    try:
        return dataset.Options(**given)
    except ValidationError as error:
        path, message = format_validation_error(error, dataset.Options, given)
        location = f"{name}: {dotted(path)}" if path else name
        raise HeadToHeadError(f"{location}: {message}") from error


def loaded_split(dataset: type[Dataset], split: str) -> str:
    """Return the ``split`` argument of ``Dataset.load``: ``nothing-held-out`` loads the first split."""
    return dataset.splits[0] if split == NOTHING_HELD_OUT else split
