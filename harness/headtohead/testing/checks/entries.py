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
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.importing import plugin_files
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import DataConfig, RunConfig

CHECKED_FAMILIES = (*COMPONENTS, "recipe", "dataset")
"""The families with invariants."""

LISTED_FAMILIES = listed(CHECKED_FAMILIES)


def find_entries(
    names: Sequence[str], files: Sequence[Path], registry: Registry
) -> list[Registered]:
    """Return the entries of the given names without duplicates.

    Without names: every entry of the plugin files, or without files every entry that is no dataset. Loading a dataset
    can take long, or need files that are not there.

    Args:
        names: ``family/name``, or a bare name, which selects the entry of that name in every family.
        files: Paths of the loaded plugin files and folders.
        registry: The registry to search.

    Raises:
        HeadToHeadError: For an unknown name, an entry of a family without invariants, or files without entries.
    """
    entries = [entry for entry in registry.all() if entry.family in CHECKED_FAMILIES]
    if names:
        found = [entry for name in names for entry in _entries_named(name, entries, registry)]
        return list({entry.label: entry for entry in found}.values())
    if not files:
        return [entry for entry in entries if entry.family != "dataset"]
    modules = {str(file) for path in files for file in plugin_files(path)}
    found = [entry for entry in entries if entry.module in modules]
    if not found:
        raise HeadToHeadError(
            f"{', '.join(modules)} registers nothing to check; h2h check takes {LISTED_FAMILIES} entries"
        )
    return found


def recipe_config(name: str, registry: Registry, overrides: Sequence[str] = ()) -> RunConfig:
    """Return a recipe as a complete configuration; ``overrides`` are fields, such as ``"data.file=spa.txt"``."""
    return _config(f"recipe '{name}'", {"recipe": name}, overrides)


def dataset_config(name: str, registry: Registry, overrides: Sequence[str] = ()) -> DataConfig:
    """Return the data section of a dataset; ``overrides`` are its fields, such as ``"file=spa.txt"``."""
    fields = [text if re.match(r"\s*data\s*[.=]", text) else f"data.{text}" for text in overrides]
    base = {"data": {"dataset": name}, "train": {"epochs": 1}}
    return _config(f"dataset '{name}'", base, fields).data


def _config(source: str, base: dict[str, Any], overrides: Sequence[str]) -> RunConfig:
    builder = ConfigBuilder(SourceLocation(Source(source)))
    builder.merge(base, builder.root)
    for override in map(read_override, overrides):
        builder.assign(override.path, override.value, override.location)
    return builder.build_consistent()


def _entries_named(
    name: str, entries: Sequence[Registered], registry: Registry
) -> list[Registered]:
    if matching := [entry for entry in entries if name in (entry.name, entry.label)]:
        return matching
    if others := [entry.label for entry in registry.all() if name in (entry.name, entry.label)]:
        raise HeadToHeadError(
            f"{others[0]} has no invariants; h2h check takes {LISTED_FAMILIES} entries"
        )
    family, _, bare = name.partition("/")
    if family in CHECKED_FAMILIES and bare:
        registry.find(family, bare)  # its error has the remedy
    hint = (
        f"; type h2h check --plugin {name}"
        if name.endswith(".py")
        else nearest(name, [each.label if family != name else each.name for each in entries])
    )
    raise HeadToHeadError(f"unknown name '{name}'{hint}")
