"""The entries that a configuration uses, and configurations of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from headtohead.config.builder import SECTION_ENTRIES
from headtohead.config.validation_errors import parse_options
from headtohead.errors import HeadToHeadError
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import Registered, current
from headtohead.plugins.watched_reads import WatchedReads, code_of, require_declared
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.schema.sections import Options


def entries_of(config: RunConfig) -> Iterator[tuple[str, EntryConfig]]:
    """Yield family and entry of the dataset, of every component's role and layer, and of the entries of sections."""
    yield "dataset", EntryConfig(name=config.data.dataset, options=config.data.options)
    for family in COMPONENTS:
        for chosen in getattr(config, family).by_role().values():
            for entry in chosen.pattern:
                yield family, entry
    for (section, field), section_family in SECTION_ENTRIES.items():
        yield section_family.name, getattr(getattr(config, section), field)


def plugins_of(config: RunConfig) -> list[Registered]:
    """Return the entries that a configuration uses, including the entries that these depend on, with what they read.

    Raises:
        HeadToHeadError: If a file that an entry declares to read is missing.
    """
    find = current().find
    options_of: dict[tuple[str, str], list[Options]] = {}
    for family, chosen in entries_of(config):
        options_of.setdefault((family, chosen.name), []).append(chosen.options)
        for name in find(family, chosen.name).entry.depends_on(chosen.options):
            default_options = find(family, name).entry.Options()
            options_of.setdefault((family, name), []).append(default_options)
    return [_with_reads(find(family, name), used) for (family, name), used in options_of.items()]


def _with_reads(registered: Registered, used_options: Sequence[Options]) -> Registered:
    """Return an entry with what it reads with any of these options."""
    reads = {}
    for options in used_options:
        for read in declared_reads(registered.entry, options):
            reads[read.name] = read
    if not reads:
        return registered
    return replace(registered, reads=tuple(reads.values()))


def outside_entries(config: RunConfig) -> list[Registered]:
    """Return the entries of a configuration that headtohead does not provide."""
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
    entries: dict[str, Registered] = {}
    for config in configs:
        for entry in outside_entries(config):
            entries[entry.label] = entry
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

    Records contain the names of entries, not their code, and are read without plugins.

    Raises:
        HeadToHeadError: With the first entry that is not registered and how to register it, or the first option
            that its entry refuses.
    """
    dataset = EntryConfig(name=config.data.dataset, options=config.data.options)
    options = _parsed("dataset", dataset, run).options
    update: dict[str, Any] = {"data": config.data.model_copy(update={"options": options})}
    for family in COMPONENTS:
        roles = getattr(config, family)
        parsed_roles = {}
        for role, chosen in roles.by_role().items():
            parsed_roles[role] = _parsed(family, chosen, run)
        update[family] = roles.model_copy(update=parsed_roles)
    for (section, field), section_family in SECTION_ENTRIES.items():
        fields = update.get(section, getattr(config, section))
        parsed = _parsed(section_family.name, getattr(fields, field), run)
        update[section] = fields.model_copy(update={field: parsed})
    return config.model_copy(update=update)


def _parsed(family: str, chosen: EntryConfig, run: str) -> EntryConfig:
    """Return an entry of a record, and those of the next layers, with options of the entry's class."""
    registered = current().entries[family].get(chosen.name)
    if registered is None:
        raise HeadToHeadError(
            f"run '{run}' uses {family} '{chosen.name}', which no plugin registers here; load the "
            "plugin that defines it with --plugin FILE, or install its package"
        )
    subject = f"the record of run '{run}' is damaged: {family} '{chosen.name}'"
    try:
        options = parse_options(
            registered.entry.Options, chosen.options.model_dump(mode="json"), subject
        )
    except HeadToHeadError as error:
        raise HeadToHeadError(f"{error}; restore it, or move its folder away") from error
    later = tuple(_parsed(family, next_entry, run) for next_entry in chosen.next_layers)
    return EntryConfig(name=chosen.name, options=options, next_layers=later)
