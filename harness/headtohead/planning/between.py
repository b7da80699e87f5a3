"""Single changes between two configurations: ``design: [{between: {from: A, to: B}}]``.

A change is a difference between the two configurations. Each change is added to the first configuration and
taken from the second. A change without an effect when added and with a large effect when taken works only
together with others. Two configurations that differ in n changes need 2n + 2 variants.
"""

from __future__ import annotations

from collections import Counter
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
        HeadToHeadError: If a group contains an unknown field, or two groups contain the same field.
    """
    known_groups = [*_named_groups(groups, list(_fields()), location), *((None, group) for group in GROUPS)]
    differing = [field for field in _fields() if identity(with_fields_from(start, [field], end)) != identity(start)]
    names: dict[tuple[FieldPath, ...], str] = {}
    for field in differing:
        name, group = next(((n, g) for n, g in known_groups if field in g), (None, (field,)))
        members = tuple(member for member in differing if member in group)
        names[members] = name or _joined(members)
    _refuse_equal_names(list(names.values()), location)
    return tuple(
        Change(name, fields, _value(start, fields, registry), _value(end, fields, registry))
        for fields, name in names.items()
    )


START, END = "from", "to"
"""Slugs of the two configurations."""


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
    names_of_changes = [change.name for change in changes]
    everything = frozenset(names_of_changes)
    points: dict[frozenset[str], Variant] = {}

    def slug_at(applied: frozenset[str], slug: str, title: str) -> str:
        """Return the slug of the configuration with these changes; with one or two changes some are equal."""
        if applied not in points:
            fields = [field for change in changes if change.name in applied for field in change.fields]
            axes = {change.name: change.after if change.name in applied else change.before for change in changes}
            points[applied] = Variant(slug, title, axes, with_fields_from(ends[0], fields, ends[1]), match)
        return points[applied].slug

    start, end = names
    slug_at(frozenset(), START, start)
    slug_at(everything, END, end)
    contrasts = []
    for name in names_of_changes:
        variant = slug_at(frozenset([name]), shortened_slug(f"from-plus-{slug_word(name)}"), f"{start} + {name}")
        contrasts.append(
            ChangeContrast(kind="added", name=f"{name} in {start}", change=name, variant=variant, against=START)
        )
    for name in names_of_changes:
        against = slug_at(everything - {name}, shortened_slug(f"to-minus-{slug_word(name)}"), f"{end} − {name}")
        contrasts.append(
            ChangeContrast(kind="taken", name=f"{name} in {end}", change=name, variant=END, against=against)
        )
    return list(points.values()), contrasts


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


def _fields() -> Iterator[FieldPath]:
    """Yield the fields that a change can consist of; a plugin entry with its options is one field per role."""
    for name, info in RunConfig.model_fields.items():
        if name in FAMILIES:
            yield from ((name, role) for role in PerRole.model_fields)
        elif name != INIT_FROM:  # both configurations have the same initial weights
            yield from _fields_of(info.annotation, (name,))


def _fields_of(section: Any, above: FieldPath) -> Iterator[FieldPath]:
    for name, info in section.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields_of(inner, (*above, name))
        elif (*above, name) != ("data", "options"):
            yield (*above, name)


def _named_groups(
    groups: Mapping[str, Sequence[str]], known: Sequence[FieldPath], location: SourceLocation
) -> list[tuple[str | None, tuple[FieldPath, ...]]]:
    named: list[tuple[str | None, tuple[FieldPath, ...]]] = []
    group_of: dict[FieldPath, str] = {}
    for name, fields in groups.items():
        members: list[FieldPath] = []
        for position, dotted in enumerate(fields):
            field_location, path = location.child(name, position), tuple(dotted.split("."))
            matching = [field for field in known if field[: len(path)] == path]
            if not matching:
                names = [".".join(field) for field in known]
                raise field_location.error(f"unknown field '{dotted}'{nearest(dotted, names)}")
            for field in matching:
                if field in group_of:
                    raise field_location.error(f"'{'.'.join(field)}' already belongs to '{group_of[field]}'")
                group_of[field] = name
            members += matching
        named.append((name, tuple(members)))
    return named


def _refuse_equal_names(names: Sequence[str], location: SourceLocation) -> None:
    """Raise an error if two changes have the same name, or the same name in slugs."""
    for word, times in Counter(slug_word(name) for name in names).items():
        if times > 1:
            raise location.error(f"two changes have the name '{word}'; rename one of them")


def _joined(fields: Sequence[FieldPath]) -> str:
    """Return the name of a change with several fields: ``train.batch_tokens+batch_size``."""
    first, *others = fields
    return "+".join([".".join(first), *(field[-1] for field in others)])


def _value(config: RunConfig, fields: Sequence[FieldPath], registry: Registry) -> Scalar:
    values = [_field_value(config, field, registry) for field in fields]
    if len(fields) == 1:
        return values[0]
    return ", ".join(f"{field[-1]} {text(value)}" for field, value in zip(fields, values, strict=True))


def _field_value(config: RunConfig, field: FieldPath, registry: Registry) -> Scalar:
    if field == ("data", "dataset"):
        return entry_label(EntryConfig(name=config.data.dataset, options=config.data.options))
    value = label_at(config, field, registry)
    return "nothing" if value in ("", None) else value
