"""The options and the split of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.entry import Options
from headtohead.schema.run_config import NOTHING_HELD_OUT


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
