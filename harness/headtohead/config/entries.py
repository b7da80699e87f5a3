"""The entries that a configuration uses, and configurations of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from headtohead.config.builder import SECTION_ENTRIES
from headtohead.config.validation_errors import parse_options
from headtohead.errors import HeadToHeadError
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.quirk import Quirk
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import Registered, calling, current, find_entries, find_entry
from headtohead.plugins.watched_reads import WatchedReads, code_of, hashed_files, require_declared
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.schema.sections import Options

KnownEntries = Mapping[str, Mapping[str, Registered]]
"""The registered entries by family and name."""


def entries_of(config: RunConfig) -> Iterator[tuple[str, EntryConfig]]:
    """Yield family and entry of the dataset, of every component's role and layer, and of the entries of sections."""
    yield "dataset", EntryConfig(name=config.data.dataset, options=config.data.options)
    for family, _, entry in config.component_entries():
        yield family, entry
    for (section, field), section_family in SECTION_ENTRIES.items():
        yield section_family.name, getattr(getattr(config, section), field)
    for name, options in config.quirks.items():
        yield "quirk", EntryConfig(name=name, options=options)


def label_options(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the options of quirks that change the labels, by quirk; of a quirk that is not loaded, all options."""
    changing = {}
    for name, options in config.quirks.items():
        values = options.model_dump(mode="json")
        registered = current().entries["quirk"].get(name)
        if registered is not None:
            quirk = cast("type[Quirk]", registered.entry)
            defaults = quirk.Options().model_dump(mode="json")
            for option, default in defaults.items():
                if option not in quirk.label_options or values.get(option) == default:
                    values.pop(option, None)
        if values:
            changing[name] = values
    return changing


def named_entries(config: RunConfig) -> list[Registered]:
    """Return the entries that a configuration names, in the order of `entries_of`.

    Raises:
        HeadToHeadError: If one is not registered.
    """
    return find_entries([(family, chosen.name) for family, chosen in entries_of(config)])


def names_built_in_only(config: RunConfig) -> bool:
    """Return whether headtohead provides all entries that a configuration names."""
    entries = current().entries
    for family, chosen in entries_of(config):
        registered = entries[family].get(chosen.name)
        if registered is None or not registered.is_built_in:
            return False
    return True


def plugins_of(config: RunConfig) -> list[Registered]:
    """Return the entries that a configuration uses, with what they read.

    They include the entries that these depend on, and those of other plugins that they inherit code from.

    Raises:
        HeadToHeadError: If an entry is not registered, a file that it declares to read is missing, or ``depends_on`` of
            a plugin fails.
    """
    options_of: dict[Registered, list[Options]] = {}
    for family, chosen in _distinct(entries_of(config)):
        registered = find_entry(family, chosen.name)
        options_of.setdefault(registered, []).append(chosen.options)
        with calling(registered.entry):
            names = tuple(registered.entry.depends_on(chosen.options))
        parts = [find_entry(family, name) for name in names]
        for part in parts:
            options_of.setdefault(part, []).append(part.entry.Options())
        for user in [registered, *parts]:
            for base in _inherited(user):
                options_of.setdefault(base, [])  # the heir declares what it reads
    return [_with_reads(registered, used) for registered, used in options_of.items()]


def _inherited(registered: Registered) -> list[Registered]:
    """Return the entries that an outside entry inherits from; those of headtohead count by its version."""
    if registered.is_built_in:
        return []
    bases = registered.entry.__mro__[1:]
    others = current().entries[registered.family].values()
    return [other for other in others if other.entry in bases and not other.is_built_in]


def _distinct(entries: Iterable[tuple[str, EntryConfig]]) -> list[tuple[str, EntryConfig]]:
    """Return entries without repetitions: most roles have the same entries."""
    distinct: list[tuple[str, EntryConfig]] = []
    for family_and_entry in entries:
        if family_and_entry not in distinct:
            distinct.append(family_and_entry)
    return distinct


def _with_reads(registered: Registered, used_options: Sequence[Options]) -> Registered:
    """Return an entry with what it reads with any of these options."""
    if not registered.entry.reads:
        return registered
    reads = {}
    for options in used_options:
        for read in declared_reads(registered.entry, options):
            reads[read.name] = read
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
    sources = set()
    for entry in entries.values():
        sources |= hashed_files(entry.entry)
    require_declared(first, first.Options(), watch, reads, sources)


def parsed_options(config: RunConfig, run: str) -> RunConfig:
    """Return the configuration of a record with the options objects of its entries.

    Records contain the names of entries, not their code, and are read without plugins.

    Raises:
        HeadToHeadError: With the first entry that is not registered and how to register it, or the first option
            that its entry refuses.
    """
    registered_entries = current().entries
    dataset = EntryConfig(name=config.data.dataset, options=config.data.options)
    options = _parsed("dataset", dataset, run, registered_entries).options
    update: dict[str, Any] = {"data": config.data.model_copy(update={"options": options})}
    for family in COMPONENTS:
        roles = getattr(config, family)
        parsed_roles = {}
        for role, chosen in roles.by_role().items():
            parsed_roles[role] = _parsed(family, chosen, run, registered_entries)
        update[family] = roles.model_copy(update=parsed_roles)
    for (section, field), section_family in SECTION_ENTRIES.items():
        fields = update.get(section, getattr(config, section))
        parsed = _parsed(section_family.name, getattr(fields, field), run, registered_entries)
        update[section] = fields.model_copy(update={field: parsed})
    quirks = {}
    for name, options in config.quirks.items():
        quirks[name] = _parsed(
            "quirk", EntryConfig(name=name, options=options), run, registered_entries
        ).options
    update["quirks"] = quirks
    return config.model_copy(update=update)


def _parsed(
    family: str, chosen: EntryConfig, run: str, registered_entries: KnownEntries
) -> EntryConfig:
    """Return an entry of a record, and those of the next layers, with options of the entry's class."""
    registered = registered_entries[family].get(chosen.name)
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
    later = tuple(
        _parsed(family, next_entry, run, registered_entries) for next_entry in chosen.next_layers
    )
    return EntryConfig(name=chosen.name, options=options, next_layers=later)
