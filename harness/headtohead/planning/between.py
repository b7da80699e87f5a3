"""Single changes between two configurations: ``design: [{between: {from: A, to: B}}]``.

A change is a difference between the two configurations. Each change is added to the first configuration and
taken from the second. A change without an effect when added and with a large effect when taken works only
together with others. Two configurations that differ in n changes need 2n + 2 variants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from headtohead.config.builder import FAMILIES
from headtohead.config.labels import Scalar, entry_label, label_at, shortened_slug, slug_word, text
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.axes import Match
from headtohead.planning.variants import Variant
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import INIT_FROM, EntryConfig, PerRole, RunConfig
from headtohead.storage.contrasts import ChangeContrast

FieldPath = tuple[str, ...]
"""Path of a configuration field; the path of a plugin entry includes the entry's options."""

GROUPS: tuple[tuple[FieldPath, ...], ...] = (
    (("data", "dataset"), ("data", "split")),
    (("train", "epochs"), ("train", "steps")),
    (("train", "batch_tokens"), ("train", "length_buckets"), ("train", "batch_size"), ("quirks", "pad_to")),
)
"""Fields that depend on each other: if several of a group differ, they form one change."""


START, END = "from", "to"
"""Slugs of the two configurations."""


@dataclass(frozen=True)
class Change:
    """A difference between two configurations: its fields, and their labels in both."""

    name: str
    fields: tuple[FieldPath, ...]
    before: Scalar
    after: Scalar


def changes_between(
    start: RunConfig,
    end: RunConfig,
    identity: Callable[[RunConfig], str],
    groups: Mapping[str, Sequence[str]],
    registry: Registry,
    location: SourceLocation,
) -> tuple[Change, ...]:
    """Return the changes between two configurations that a result depends on, in the order of the schema.

    Args:
        start: The first configuration, resolved.
        end: The second configuration, resolved.
        identity: Returns a text that is equal for configurations with equal results.
        groups: Fields that form one change, by the name of the change.
        registry: Provides the plugin entries.
        location: Location of the groups in the experiment file.

    Raises:
        HeadToHeadError: If a group contains an unknown field, two groups contain the same field, or two changes have
            the same name.
    """
    fields = list(_fields(RunConfig))
    named = [*_named_groups(groups, fields, location), *(("", group) for group in GROUPS)]
    differing = [field for field in fields if identity(with_fields_from(start, [field], end)) != identity(start)]
    changes: dict[tuple[FieldPath, ...], Change] = {}
    for field in differing:
        name, group = next(((name, group) for name, group in named if field in group), ("", (field,)))
        members = tuple(member for member in differing if member in group)
        first, *others = members
        name = name or "+".join([".".join(first), *(other[-1] for other in others)])
        before, after = (_value(config, members, registry) for config in (start, end))
        changes[members] = Change(name, members, before, after)
    words = [slug_word(change.name) for change in changes.values()]
    for word in words:
        if words.count(word) > 1:
            raise location.error(f"two changes have the name '{word}'; rename one of them")
    return tuple(changes.values())


def expand_between(
    ends: tuple[RunConfig, RunConfig], names: tuple[str, str], changes: Sequence[Change], match: Match
) -> tuple[list[Variant], list[ChangeContrast]]:
    """Return both configurations with every change added to the first or taken from the second, and their contrasts.

    Args:
        ends: The two configurations.
        names: Their display names.
        changes: The changes between them.
        match: The count that ``d_ff`` is widened to match.
    """
    variants: dict[frozenset[Change], Variant] = {}

    def slug_at(applied: Collection[Change], slug: str, title: str) -> str:
        """Return the slug of the configuration with these changes; with one or two changes some are equal."""
        key = frozenset(applied)
        if key not in variants:
            fields = [field for change in changes if change in key for field in change.fields]
            axes = {change.name: change.after if change in key else change.before for change in changes}
            variants[key] = Variant(slug, title, axes, with_fields_from(ends[0], fields, ends[1]), match)
        return variants[key].slug

    start, end = names
    slug_at((), START, start)
    slug_at(changes, END, end)
    added, taken = [], []
    for change in changes:
        name, word = change.name, slug_word(change.name)
        plus = slug_at([change], shortened_slug(f"from-plus-{word}"), f"{start} + {name}")
        added.append(ChangeContrast(kind="added", name=f"{name} in {start}", change=name, variant=plus, against=START))
    for change in changes:
        name, word = change.name, slug_word(change.name)
        rest = [other for other in changes if other is not change]
        minus = slug_at(rest, shortened_slug(f"to-minus-{word}"), f"{end} − {name}")
        taken.append(ChangeContrast(kind="taken", name=f"{name} in {end}", change=name, variant=END, against=minus))
    return list(variants.values()), [*added, *taken]


def with_fields_from(config: RunConfig, fields: Collection[FieldPath], source: RunConfig) -> RunConfig:
    """Return ``config`` with the values of these fields taken from ``source``."""

    def replaced(section: Any, origin: Any, name: str, *rest: str) -> Any:
        value = getattr(origin, name)
        return section.model_copy(update={name: replaced(getattr(section, name), value, *rest) if rest else value})

    for field in fields:
        config = replaced(config, source, *field)
        if field == ("data", "dataset"):
            config = replaced(config, source, "data", "options")
    return config


def _fields(section: Any, above: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the fields that a change can consist of; a plugin entry with its options is one field per role."""
    for name, info in section.model_fields.items():
        path, inner = (*above, name), info.annotation
        if path[0] in FAMILIES:
            yield from ((name, role) for role in PerRole.model_fields)
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, path)
        # Both configurations have the same initial weights, and a dataset has its options.
        elif path not in ((INIT_FROM,), ("data", "options")):
            yield path


def _named_groups(
    groups: Mapping[str, Sequence[str]], known: Sequence[FieldPath], location: SourceLocation
) -> list[tuple[str, tuple[FieldPath, ...]]]:
    group_of: dict[FieldPath, str] = {}
    for name, fields in groups.items():
        for position, dotted in enumerate(fields):
            path = tuple(dotted.split("."))
            matching = [field for field in known if field[: len(path)] == path]
            if not matching:
                names = [".".join(field) for field in known]
                raise location.child(name, position).error(f"unknown field '{dotted}'{nearest(dotted, names)}")
            for field in matching:
                if field in group_of:
                    owner = f"'{'.'.join(field)}' already belongs to '{group_of[field]}'"
                    raise location.child(name, position).error(owner)
                group_of[field] = name
    return [(name, tuple(field for field, owner in group_of.items() if owner == name)) for name in groups]


def _value(config: RunConfig, fields: Sequence[FieldPath], registry: Registry) -> Scalar:
    dataset = EntryConfig(name=config.data.dataset, options=config.data.options)
    labels = (
        entry_label(dataset) if field == ("data", "dataset") else label_at(config, field, registry) for field in fields
    )
    values: list[Scalar] = ["nothing" if label in ("", None) else label for label in labels]
    if len(values) == 1:
        return values[0]
    return ", ".join(f"{field[-1]} {text(value)}" for field, value in zip(fields, values, strict=True))
