"""The entries that can be checked, by the names that users type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headtohead.config.builder import ConfigBuilder
from headtohead.config.loading import read_override
from headtohead.config.resolve import build_consistent_config, merge_base
from headtohead.config.source_location import Source, SourceLocation
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import RunConfig

FAMILIES = ("positional", "attention", "masking", "recipe")
"""The families with invariants."""


def targets(names: Sequence[str], registry: Registry) -> list[Registered]:
    """Return the entries of the given names, each once, or every entry without names.

    Args:
        names: ``family/name``, or a name alone, which means that of every family that has it.
        registry: Where they are looked up.

    Raises:
        HeadToHeadError: For an unknown name, or one of a family without invariants.
    """
    known = [one for one in registry.all() if one.family in FAMILIES]
    if not names:
        return known
    found = {label(one): one for name in names for one in _named(name, known, registry)}
    return list(found.values())


def of_files(files: Sequence[Path], registry: Registry) -> list[Registered]:
    """Return the entries that plugin files register.

    Args:
        files: As they were loaded.
        registry: Where they were loaded to.

    Raises:
        HeadToHeadError: If they register nothing that has invariants.
    """
    modules = {str(path) for path in files}
    found = [one for one in registry.all() if one.module in modules and one.family in FAMILIES]
    if not found:
        raise HeadToHeadError(
            f"{', '.join(modules)} registers nothing to check; h2h check takes "
            f"{', '.join(FAMILIES[:-1])} and {FAMILIES[-1]} entries"
        )
    return found


def label(one: Registered) -> str:
    """Return the name that identifies an entry."""
    return f"{one.family}/{one.name}"


def recipe_config(name: str, registry: Registry, overrides: Sequence[str] = ()) -> RunConfig:
    """Return a recipe as a full configuration.

    Args:
        name: Of the recipe.
        registry: Where it is looked up.
        overrides: ``"data.file=spa.txt"``, laid over it.

    Raises:
        HeadToHeadError: For an unknown field or a value that does not fit.
    """
    builder = ConfigBuilder(registry, SourceLocation(Source(f"recipe '{name}'")))
    merge_base(builder, {"recipe": name}, builder.root)
    for override in map(read_override, overrides):
        builder.assign(override.path, override.value, override.location)
    return build_consistent_config(builder)


def _named(name: str, known: Sequence[Registered], registry: Registry) -> list[Registered]:
    found = [one for one in known if name in (one.name, label(one))]
    if found:
        return found
    other = next((one for one in registry.all() if name in (one.name, label(one))), None)
    if other is not None:
        raise HeadToHeadError(
            f"{label(other)} has no invariants; h2h check takes {', '.join(FAMILIES[:-1])} and "
            f"{FAMILIES[-1]} entries, for example {label(known[0])}"
        )
    names = [label(one) if "/" in name else one.name for one in known]
    raise HeadToHeadError(f"unknown name '{name}'{nearest(name, names)}")
