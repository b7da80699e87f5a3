"""Single changes between two configurations: ``design: [{between: {from: A, to: B}}]``.

A change is a difference between the two configurations as written, so that values which derive from others follow
them, such as ``d_ff: 4x``. Each change is added to the first configuration and taken from the second. A change without
an effect when added and with a large effect when taken may work only together with others. Two configurations that
differ in n changes need 2n + 2 variants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from headtohead.config.builder import SECTION_ENTRIES, ConfigBuilder, is_dataset_option
from headtohead.config.labels import Scalar, entry_label, label_at, shortened_slug, slug_word, text
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.variants import Match, Variant
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import EntryConfig, RunConfig
from headtohead.storage.contrasts import ChangeContrast

FieldPath = tuple[str, ...]
"""Path of a configuration field; the path of a plugin entry includes the entry's options."""

DATASET: FieldPath = ("data", "dataset")

GROUPS: tuple[tuple[FieldPath, ...], ...] = (
    (DATASET, ("data", "split")),
    (("train", "epochs"), ("train", "steps")),
    (
        ("train", "batch_tokens"),
        ("train", "length_buckets"),
        ("train", "batch_size"),
        ("quirks", "pad_to"),
    ),
)
"""Fields that depend on each other: if several of a group differ, they form one change."""

START, END = "from", "to"
"""Slugs of the two configurations."""


def changes_between(
    start: ConfigBuilder,
    end: ConfigBuilder,
    identity: Callable[[RunConfig], str],
    groups: Mapping[str, Sequence[str]],
    location: SourceLocation,
) -> dict[str, tuple[FieldPath, ...]]:
    """Return the fields of every change that a result depends on, by the name of the change, in the schema's order.

    Args:
        start: The first configuration.
        end: The second configuration.
        identity: Returns a text that is equal for configurations with equal results.
        groups: Fields that form one change, by the name of the change.
        location: Location of the groups in the experiment file.

    Raises:
        HeadToHeadError: If a group contains an unknown field, two groups contain the same field, or two changes have
            the same name.
    """
    named = [*_named_groups(groups, location), *(("", group) for group in GROUPS)]
    written = [{path: value for path, (value, _) in side.values.items()} for side in (start, end)]
    changed = {
        _field_of(path)
        for path in written[0].keys() | written[1].keys()
        if (path in written[0], written[0].get(path)) != (path in written[1], written[1].get(path))
    }
    ends = [(side, other, identity(side.build())) for side, other in ((start, end), (end, start))]
    differing = [
        field
        for field in FIELDS
        if field in changed
        and any(
            identity(with_fields_from(side, [field], other).build()) != own
            for side, other, own in ends
        )
    ]
    changes: dict[str, tuple[FieldPath, ...]] = {}
    for field in differing:
        name, group = next(
            ((name, group) for name, group in named if field in group), ("", (field,))
        )
        members = tuple(member for member in differing if member in group)
        if members not in changes.values():
            name = name or "+".join([".".join(members[0]), *(other[-1] for other in members[1:])])
            if slug_word(name) in map(slug_word, changes):
                raise location.error(
                    f"two changes have the name '{slug_word(name)}'; rename one of them"
                )
            changes[name] = members
    return changes


def expand_between(
    start: ConfigBuilder,
    end: ConfigBuilder,
    names: Sequence[str],
    changes: Mapping[str, Sequence[FieldPath]],
    match: Match,
) -> tuple[list[Variant], list[ChangeContrast]]:
    """Return both configurations with every change added to the first or taken from the second, and their contrasts.

    ``names`` are the display names of the configurations, and ``match`` is the count that ``d_ff`` is widened to match.
    """
    variants: dict[frozenset[str], Variant] = {}
    labels = [
        {name: _value(side, fields) for name, fields in changes.items()} for side in (start, end)
    ]

    def slug_at(applied: Collection[str], slug: str, title: str) -> str:
        """Add the configuration with these changes, unless it exists, and return its slug."""
        key = frozenset(applied)
        if key not in variants:
            fields = [field for name in applied for field in changes[name]]
            builder = end if len(key) == len(changes) else with_fields_from(start, fields, end)
            axes = {name: labels[name in key][name] for name in changes}
            variants[key] = Variant(slug, title, axes, builder.build(), match)
        return variants[key].slug

    slug_at((), START, names[0])
    slug_at(changes, END, names[1])
    contrasts = []
    for name in changes:
        plus = slug_at(
            [name], shortened_slug(f"from-plus-{slug_word(name)}"), f"{names[0]} + {name}"
        )
        title = f"{name} in {names[0]}"
        contrasts.append(
            ChangeContrast(kind="added", name=title, change=name, variant=plus, against=START)
        )
    for name in changes:
        rest = [other for other in changes if other != name]
        minus = slug_at(rest, shortened_slug(f"to-minus-{slug_word(name)}"), f"{names[1]} − {name}")
        title = f"{name} in {names[1]}"
        contrasts.append(
            ChangeContrast(kind="taken", name=title, change=name, variant=END, against=minus)
        )
    return list(variants.values()), contrasts


def with_fields_from(
    builder: ConfigBuilder, fields: Collection[FieldPath], source: ConfigBuilder
) -> ConfigBuilder:
    """Return a copy with the values of these fields, or their absence, taken from ``source``."""
    twin = builder.copy()
    kept = {path: value for path, value in builder.values.items() if _field_of(path) not in fields}
    twin.values = kept | {
        path: value for path, value in source.values.items() if _field_of(path) in fields
    }
    return twin


def _field_of(path: Sequence[Any]) -> FieldPath:
    """Return the field of a change to which a value belongs: an entry or a dataset includes its options."""
    if path[0] in COMPONENTS:
        return tuple(path[:2])
    if is_dataset_option(tuple(path)):
        return DATASET
    return next(
        (tuple(path[:length]) for length in (2, 3) if tuple(path[:length]) in FIELDS), tuple(path)
    )


def _fields(section: Any, above: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the fields that a change can consist of; a plugin entry with its options is one field per role."""
    for name, info in section.model_fields.items():
        path, inner = (*above, name), info.annotation
        if path[0] in COMPONENTS:
            yield from ((name, role) for role in inner.model_fields)
        elif path in SECTION_ENTRIES:
            yield path
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, path)
        elif path != ("data", "options"):  # a dataset has its options
            yield path


FIELDS = tuple(_fields(RunConfig))


def _named_groups(
    groups: Mapping[str, Sequence[str]], location: SourceLocation
) -> list[tuple[str, tuple[FieldPath, ...]]]:
    group_of: dict[FieldPath, str] = {}
    for name, fields in groups.items():
        for position, dotted in enumerate(fields):
            path = tuple(dotted.split("."))
            matching = [field for field in FIELDS if field[: len(path)] == path]
            if not matching:
                names = [".".join(field) for field in FIELDS]
                raise location.child(name, position).error(
                    f"unknown field '{dotted}'{nearest(dotted, names)}"
                )
            for field in matching:
                if field in group_of:
                    owner = f"'{'.'.join(field)}' already belongs to '{group_of[field]}'"
                    raise location.child(name, position).error(owner)
                group_of[field] = name
    return [
        (name, tuple(field for field, owner in group_of.items() if owner == name))
        for name in groups
    ]


def _value(builder: ConfigBuilder, fields: Sequence[FieldPath]) -> Scalar:
    """Return the label of these fields: ``4x`` as written, other values with their defaults."""
    config = builder.build()
    values: list[Scalar] = []
    for field in fields:
        label = label_at(config, field)
        if field == DATASET:
            label = entry_label(EntryConfig(name=config.data.dataset, options=config.data.options))
        elif field == ("model", "d_ff"):
            label = builder.value(*field) or label
        values.append("nothing" if label in ("", None) else label)
    if len(values) == 1:
        return values[0]
    return ", ".join(
        f"{field[-1]} {text(value)}" for field, value in zip(fields, values, strict=True)
    )
