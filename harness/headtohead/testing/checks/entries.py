"""The entries that ``h2h check`` can check, by the names that users type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headtohead.config.builder import ConfigBuilder
from headtohead.config.labels import listed
from headtohead.config.loading import read_override
from headtohead.config.source_location import Source, SourceLocation
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.families import CHECKED_FAMILIES
from headtohead.plugins.importing import plugin_files
from headtohead.plugins.registry import Registered, current, find_entry
from headtohead.schema.run_config import DataConfig, RunConfig

LISTED_FAMILIES = listed(CHECKED_FAMILIES)


def find_entries(names: Sequence[str], files: Sequence[Path]) -> list[Registered]:
    """Return the entries of the given names without duplicates.

    Without names: every entry of the plugin files, or without files every entry that is no dataset. Loading a dataset
    can take long, or need files that are not there.

    Args:
        names: ``family/name``, or a bare name, which selects the entry of that name in every family.
        files: Paths of the loaded plugin files and folders.

    Raises:
        HeadToHeadError: For an unknown name, an entry of a family without invariants, or files without entries.
    """
    checked = [entry for entry in current().all() if entry.family in CHECKED_FAMILIES]
    if names:
        by_label: dict[str, Registered] = {}
        for name in names:
            for entry in _entries_named(name, checked):
                by_label[entry.label] = entry
        return list(by_label.values())
    if not files:
        return [entry for entry in checked if entry.family != "dataset"]
    modules: set[str] = set()
    for path in files:
        modules |= {str(file) for file in plugin_files(path)}
    of_files = [entry for entry in checked if entry.module in modules]
    if not of_files:
        raise HeadToHeadError(
            f"{', '.join(modules)} registers nothing to check; h2h check takes {LISTED_FAMILIES} entries"
        )
    return of_files


def recipe_config(name: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Return a recipe as a complete configuration; ``overrides`` are fields, such as ``"data.file=spa.txt"``."""
    return _config(f"recipe '{name}'", {"recipe": name}, overrides)


def dataset_config(name: str, overrides: Sequence[str] = ()) -> DataConfig:
    """Return the data section of a dataset; ``overrides`` are its fields, such as ``"file=spa.txt"``."""
    fields = []
    for text in overrides:
        is_full_path = re.match(r"\s*data\s*[.=]", text)
        fields.append(text if is_full_path else f"data.{text}")
    base = {"data": {"dataset": name}, "train": {"epochs": 1}}
    return _config(f"dataset '{name}'", base, fields).data


def _config(source: str, base: dict[str, Any], overrides: Sequence[str]) -> RunConfig:
    builder = ConfigBuilder(SourceLocation(Source(source)))
    builder.merge(base, builder.root)
    for text in overrides:
        override = read_override(text)
        builder.assign(override.path, override.value, override.location)
    return builder.build_consistent()


def _entries_named(name: str, checked: Sequence[Registered]) -> list[Registered]:
    """Return the entries with a name, in every family; an error says what is wrong with another name."""
    matching = [entry for entry in checked if name in (entry.name, entry.label)]
    if matching:
        return matching
    for entry in current().all():
        if name in (entry.name, entry.label):
            raise HeadToHeadError(
                f"{entry.label} has no invariants; h2h check takes {LISTED_FAMILIES} entries"
            )
    family, _, bare = name.partition("/")
    if family in CHECKED_FAMILIES and bare:
        find_entry(family, bare)  # its error has the remedy
    if name.endswith(".py"):
        raise HeadToHeadError(f"unknown name '{name}'; type h2h check --plugin {name}")
    candidates = [entry.name for entry in checked]
    if "/" in name:
        candidates = [entry.label for entry in checked]
    raise HeadToHeadError(f"unknown name '{name}'{nearest(name, candidates)}")
