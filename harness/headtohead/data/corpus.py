"""The options and the split of a dataset."""

from __future__ import annotations

from pydantic import ValidationError

from headtohead.config.source_location import dotted
from headtohead.config.validation_errors import format_validation_error
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.entry import Options
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig


def dataset_options(config: DataConfig, dataset: type[Dataset]) -> Options:
    """Return the options of a dataset; those of a record are parsed.

    Raises:
        HeadToHeadError: For an unknown option, with the nearest name, or an invalid value.
    """
    if isinstance(config.options, dataset.Options):
        return config.options
    given = config.options.model_dump()
    try:
        return dataset.Options(**given)
    except ValidationError as error:
        path, message = format_validation_error(error, dataset.Options, given)
        location = f"{config.dataset}: {dotted(path)}" if path else config.dataset
        raise HeadToHeadError(f"{location}: {message}") from error


def loaded_split(dataset: type[Dataset], split: str) -> str:
    """Return the ``split`` argument of ``Dataset.load``: ``nothing-held-out`` loads the first split."""
    return dataset.splits[0] if split == NOTHING_HELD_OUT else split
