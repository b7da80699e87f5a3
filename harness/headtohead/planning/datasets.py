"""The prepared data of an experiment, and which configurations these data do not fit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from headtohead import data
from headtohead.config.loading import LoadedExperiment
from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.planning.compatibility import (
    find_incompatibility,
    find_part_without_labels,
    find_unequal_lengths,
)
from headtohead.schema.run_config import RunConfig


class PreparedDataSets:
    """The prepared data of an experiment, each data section once.

    Args:
        loaded: The experiment file, for the location of an error.
        cache: Folder of prepared data.
    """

    def __init__(self, loaded: LoadedExperiment, cache: Path) -> None:
        self.loaded = loaded
        self.cache = cache
        self.by_section: dict[str, PreparedData] = {}

    @property
    def by_hash(self) -> Mapping[str, PreparedData]:
        """The prepared data by data hash."""
        return {prepared.data_hash: prepared for prepared in self.by_section.values()}

    def of(self, config: RunConfig) -> PreparedData:
        """Return the data of a configuration; they are prepared, and written to the cache, at the first call.

        Raises:
            UndefinedError: If the options of the vocabulary do not fit the data or each other, such as
                ``data.vocabulary.ids: printed`` for a dataset without printed vocabularies. The error has no location,
                because it is a reason to exclude a variant. Whether the dataset has the split is not checked here.
            HeadToHeadError: If the data cannot be read, a plugin fails or the cache cannot be written, with the
                location of the data section.
        """
        section = config.data.model_dump_json()
        if section not in self.by_section:
            try:
                prepared = data.prepare(config.data, self.cache)
            except UndefinedError:  # a HeadToHeadError, too, but without a location
                raise
            except HeadToHeadError as error:
                raise self.loaded.location("base", "data").error(str(error)) from error
            self.by_section[section] = prepared
        return self.by_section[section]

    def incompatibility(self, config: RunConfig) -> str | None:
        """Return why a configuration cannot run, or None.

        Its fields are checked first, then the options of its dataset and the lengths of its sentences. Data are
        prepared only if the fields show no reason.

        Raises:
            HeadToHeadError: If the data cannot be read, or a plugin is faulty.
        """
        reason = find_incompatibility(config, longest={})  # lengths are unknown before preparation
        if reason is not None:
            return reason
        try:
            prepared = self.of(config)
        except UndefinedError as error:
            return str(error)
        reason = find_incompatibility(config, prepared.record["longest"])
        if reason is not None:
            return reason
        target_lengths = {
            part: [len(ids) for ids in split.target] for part, split in prepared.splits.items()
        }
        reason = find_unequal_lengths(config, itertools.chain(*target_lengths.values()))
        if reason is not None:
            return reason
        without_labels = {
            part: lengths
            for part, lengths in target_lengths.items()
            if prepared.splits[part].labels is None
        }
        return find_part_without_labels(config, without_labels)
