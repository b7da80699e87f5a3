"""The entries that a configuration uses, and configurations of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from headtohead.config.builder import FAMILIES
from headtohead.config.validation_errors import parse_options
from headtohead.errors import HeadToHeadError
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import Registered, current
from headtohead.plugins.watched_reads import WatchedReads, code_of, require_declared
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.schema.sections import Options


def entries_of(config: RunConfig) -> Iterator[tuple[str, EntryConfig]]:
    """Yield the dataset, and family and entry of every family, role and layer of a pattern."""
    yield "dataset", EntryConfig(name=config.data.dataset, options=config.data.options)
    for family in FAMILIES:
        for entry in getattr(config, family).by_role().values():
            yield from ((family, each) for each in entry.pattern)


def plugins_of(config: RunConfig) -> list[Registered]:
    """Return the entries that a configuration uses, including the entries that these depend on, with what they read.

    Raises:
        HeadToHeadError: If a file that an entry declares to read is missing.
    """
    used: dict[tuple[str, str], list[Options]] = {}
    for family, chosen in entries_of(config):
        used.setdefault((family, chosen.name), []).append(chosen.options)
        for name in current().find(family, chosen.name).entry.depends_on(chosen.options):
            used.setdefault((family, name), []).append(current().find(family, name).entry.Options())
    return [
        _with_reads(current().find(family, name), options)
        for (family, name), options in used.items()
    ]


def _with_reads(registered: Registered, options: Sequence[Options]) -> Registered:
    """Return an entry with what it reads with any of these options."""
    reads = {read.name: read for each in options for read in declared_reads(registered.entry, each)}
    return replace(registered, reads=tuple(reads.values())) if reads else registered


def outside_entries(config: RunConfig) -> list[Registered]:
    """Return the components and the dataset of a configuration that headtohead does not provide."""
    return [entry for entry in plugins_of(config) if not entry.is_built_in]


def names_of(entries: Iterable[Registered]) -> str:
    """Return the labels of entries for a sentence: "attention/mine and norm/other"."""
    return " and ".join(sorted({entry.label for entry in entries}))


@contextmanager
def watched_entries(configs: Iterable[RunConfig]) -> Iterator[None]:
    """Refuse what the outside entries of configurations change for the whole process, or read without declaring it.

    Hooks are called in the block, after the construction of their components.

    Raises:
        HeadToHeadError: If an entry replaces a function, changes a setting of torch, samples from a global generator,
            or reads a file or a variable that it does not declare.
    """
    entries = {entry.label: entry for config in configs for entry in outside_entries(config)}
    if not entries:
        yield
        return
    code = [path for entry in entries.values() for path in code_of(entry.entry.__module__)]
    with unchanged_process(names_of(entries.values())), WatchedReads(code) as watch:
        yield
    reads = [read for entry in entries.values() for read in entry.reads]
    first = entries[min(entries)].entry
    require_declared(first, first.Options(), watch, reads)


def parsed_options(config: RunConfig, run: str) -> RunConfig:
    """Return the configuration of a record with the options objects of its entries.

    Records contain the names of entries, not their code.

    Raises:
        HeadToHeadError: With the first entry that is not registered and how to register it, or the first option
            that its entry refuses.
    """

    def parsed(family: str, name: str, options: Options) -> Options:
        if name not in current().entries[family]:
            raise HeadToHeadError(
                f"run '{run}' uses {family} '{name}', which no plugin registers here; load the "
                "plugin that defines it with --plugin FILE, or install its package"
            )
        subject = f"the record of run '{run}' is damaged: {family} '{name}'"
        try:
            return parse_options(
                current().find(family, name).entry.Options, options.model_dump(mode="json"), subject
            )
        except HeadToHeadError as error:
            raise HeadToHeadError(f"{error}; restore it, or move its folder away") from error

    def parsed_entry(family: str, chosen: EntryConfig) -> EntryConfig:
        later = tuple(parsed_entry(family, entry) for entry in chosen.next_layers)
        options = parsed(family, chosen.name, chosen.options)
        return EntryConfig(name=chosen.name, options=options, next_layers=later)

    dataset = parsed("dataset", config.data.dataset, config.data.options)
    update: dict[str, Any] = {"data": config.data.model_copy(update={"options": dataset})}
    for family in FAMILIES:
        roles = getattr(config, family)
        update[family] = roles.model_copy(
            update={role: parsed_entry(family, chosen) for role, chosen in roles.by_role().items()}
        )
    return config.model_copy(update=update)
