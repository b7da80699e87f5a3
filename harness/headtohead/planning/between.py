"""Single changes between two configurations: ``design: [{between: {from: A, to: B}}]``.

A change is a difference between the two configurations as written, so that values which derive from others follow
them, such as ``d_ff: 4x``. Each change is added to the first configuration and taken from the second. A change without
an effect when added and with a large effect when taken may work only together with others. Two configurations that
differ in n changes need at most 2n + 2 variants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from headtohead.config.builder import SECTION_ENTRIES, ConfigBuilder, is_dataset_option
from headtohead.config.clauses import change_clause
from headtohead.config.labels import Scalar, entry_label, label_at, shortened_slug, slug_word, text
from headtohead.config.phrases import axis_name, entry_phrase, field_phrase, phrase_at
from headtohead.config.source_location import SourceLocation
from headtohead.errors import nearest
from headtohead.planning.axis_phrases import GivenNames
from headtohead.planning.variants import Match, Variant, variant_key
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import QUIRKS, EntryConfig, ModelConfig, RunConfig
from headtohead.storage.contrasts import AxisEffect, ContrastRecord

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
        ("train", "pad_to"),
    ),
)
"""Fields that depend on each other: if several of a group differ, they form one change."""

IN = "{clause} in {configuration}"
"""The name of a change in one of the two configurations."""

START, END = "from", "to"
"""Slugs of the two configurations."""


def changes_between(
    start: ConfigBuilder,
    end: ConfigBuilder,
    groups: Mapping[str, Sequence[str]],
    location: SourceLocation,
) -> dict[str, tuple[FieldPath, ...]]:
    """Return the fields of each change by the name of the change, in the schema's order.

    A change consists of fields that differ and that a result depends on. The result is empty without such fields, and
    a group without such fields is no change. Fields that depend on each other form one change, except those that the
    file puts into another group. A change without a name in the file is named by the path of its first field and the
    last parts of the others, such as ``train.epochs+steps``.

    Args:
        start: The first configuration.
        end: The second configuration.
        groups: Dotted paths of the fields that form one change, by the name of the change. A section, such as
            ``train``, stands for all its fields.
        location: Location of the groups in the experiment file.

    Raises:
        HeadToHeadError: If a group contains an unknown field, a field is listed twice in the groups, the names of two
            changes have the same slug, or a configuration has an unknown name or field, or a wrong type: one of the
            two, or one of them with a field of the other.
    """
    group_of = _named_groups(groups, location)
    differing = _differing_fields(start, end)
    changes: dict[str, tuple[FieldPath, ...]] = {}
    for field in differing:
        group = group_of.get(field) or _dependent_fields(field)
        changed = []
        for other in differing:
            is_elsewhere = other in group_of and group_of[other] != group
            if other in group.fields and not is_elsewhere:
                changed.append(other)
        changed_fields = tuple(changed)
        if changed_fields in changes.values():  # an earlier field of the same group
            continue
        name = group.name
        if not name:
            other_names = [other[-1] for other in changed_fields[1:]]
            name = "+".join([".".join(changed_fields[0]), *other_names])
        if slug_word(name) in [slug_word(earlier) for earlier in changes]:
            raise location.error(
                f"two changes have the name '{slug_word(name)}'; rename one of them"
            )
        changes[name] = changed_fields
    return changes


def _differing_fields(start: ConfigBuilder, end: ConfigBuilder) -> list[FieldPath]:
    """Return the fields in which two configurations differ and on which the result of one of them depends.

    They are in the order of ``FIELDS``, then options of quirks, sorted. A field whose value changes nothing in either
    configuration, such as an option that the other fields disable, is left out.

    Raises:
        HeadToHeadError: If a configuration has an unknown name or field, or a wrong type: one of the two, or one of
            them with a field of the other.
    """
    absent = object()
    written = set()
    for path in start.values.keys() | end.values.keys():
        value, _ = start.values.get(path, (absent, None))
        other_value, _ = end.values.get(path, (absent, None))
        if value is not other_value and value != other_value:
            written.add(_field_of(path))
    start_key = variant_key(start.build(), "none")
    end_key = variant_key(end.build(), "none")
    differing = []
    quirks = sorted(field for field in written if field[0] == QUIRKS)
    for field in (*FIELDS, *quirks):
        if field not in written:
            continue
        added = with_fields_from(start, [field], end)
        if variant_key(added.build(), "none") != start_key:
            differing.append(field)
            continue
        taken = with_fields_from(end, [field], start)
        if variant_key(taken.build(), "none") != end_key:
            differing.append(field)
    return differing


def expand_between(
    start: ConfigBuilder,
    end: ConfigBuilder,
    names: Sequence[str],
    changes: Mapping[str, Sequence[FieldPath]],
    match: Match,
    given: GivenNames,
) -> tuple[list[Variant], list[ContrastRecord]]:
    """Return both configurations, variants with a single change added or taken, and their contrasts.

    Each change has two variants: the first configuration with it, and the second without it. Equal sets of
    changes are one variant: one change gives 2 variants, two changes give 4, and n ≥ 3 changes give 2n + 2.

    Args:
        start: The first configuration, with the slug ``from``.
        end: The second configuration, with the slug ``to``.
        names: The display names of both configurations; exactly two.
        changes: The fields of each change, as `changes_between` returns them; not empty.
        match: The count that ``d_ff`` is changed to match.
        given: The names that the experiment file gives.

    Returns:
        The variants, and two contrasts per change: first the additions of all changes, then their removals.

    Raises:
        HeadToHeadError: If a configuration with some of the changes has an unknown name or field, or a wrong type; if
            the file names a value that no change has.
    """
    start_name, end_name = names
    points = _Points(start, end, changes, match, given)
    points.add((), START, start_name)
    points.add(changes, END, end_name)
    contrasts = []
    for name in changes:
        slug = shortened_slug(f"from-plus-{slug_word(name)}")
        plus = points.add([name], slug, f"{start_name}, {points.end_phrases[name]}")
        clause = IN.format(clause=points.clause(name), configuration=start_name)
        effects = (points.effect(name),)
        contrasts.append(ContrastRecord.of_two(clause, "added", plus, START, effects))
    for name in changes:
        slug = shortened_slug(f"to-minus-{slug_word(name)}")
        rest = [kept for kept in changes if kept != name]
        minus = points.add(rest, slug, f"{end_name}, {points.start_phrases[name]}")
        clause = IN.format(clause=points.clause(name), configuration=end_name)
        effects = (points.effect(name),)
        contrasts.append(ContrastRecord.of_two(clause, "taken", END, minus, effects))
    return list(points.variants.values()), contrasts


class _Points:
    """Configurations between two ends: the first one with some of the changes.

    Constructing it builds both ends, for the labels of the changes. Each configuration that is added is kept in
    ``variants``, by the names of its changes.

    Raises:
        HeadToHeadError: If an end is invalid, or the file names an axis or a value that no change has.
    """

    def __init__(
        self,
        start: ConfigBuilder,
        end: ConfigBuilder,
        changes: Mapping[str, Sequence[FieldPath]],
        match: Match,
        given: GivenNames,
    ) -> None:
        self.start = start
        self.end = end
        self.changes = changes
        self.match = match
        self.variants: dict[frozenset[str], Variant] = {}
        self.start_labels = {
            name: _label_of_fields(start, fields) for name, fields in changes.items()
        }
        self.end_labels = {name: _label_of_fields(end, fields) for name, fields in changes.items()}
        given.check({name: [self.start_labels[name], self.end_labels[name]] for name in changes})
        self.start_phrases: dict[str, str] = {}
        self.end_phrases: dict[str, str] = {}
        for name, fields in changes.items():
            start_label, end_label = text(self.start_labels[name]), text(self.end_labels[name])
            phrases = {
                start_label: _phrase_of_fields(start, fields),
                end_label: _phrase_of_fields(end, fields),
            }
            phrases = given.distinct_phrases(name, phrases)
            self.start_phrases[name] = phrases[start_label]
            self.end_phrases[name] = phrases[end_label]

    def clause(self, name: str) -> str:
        """Return the clause for a change, such as ``rotary instead of learned positions``."""
        return change_clause(self.end_phrases[name], self.start_phrases[name])

    def effect(self, name: str) -> AxisEffect:
        """Return the labels of a change in both configurations."""
        return AxisEffect(axis=name, value=self.end_labels[name], against=self.start_labels[name])

    def add(self, applied: Collection[str], slug: str, title: str) -> str:
        """Add the first configuration with these changes and return its slug.

        If it was added before, its earlier slug is returned and ``slug`` and ``title`` are ignored. With all changes,
        it is the second configuration.

        Args:
            applied: Names of changes, keys of ``changes``; an unknown name is a `KeyError`.
            slug: The slug of a new variant.
            title: The title of a new variant.

        Raises:
            HeadToHeadError: If the configuration has an unknown name or field, or a wrong type.
        """
        key = frozenset(applied)
        if key in self.variants:
            return self.variants[key].slug
        if len(key) == len(self.changes):
            config = self.end.build()
        else:
            fields = [field for name in applied for field in self.changes[name]]
            config = with_fields_from(self.start, fields, self.end).build()
        axes = {}
        phrases = {}
        for name in self.changes:
            axes[name] = self.end_labels[name] if name in key else self.start_labels[name]
            phrases[name] = self.end_phrases[name] if name in key else self.start_phrases[name]
        self.variants[key] = Variant(slug, title, axes, config, self.match, phrases)
        return slug


def with_fields_from(
    builder: ConfigBuilder, fields: Collection[FieldPath], source: ConfigBuilder
) -> ConfigBuilder:
    """Return a copy of ``builder`` in which these fields are as in ``source``: with its values, or absent.

    Neither builder is changed, and nothing is validated.
    """
    twin = builder.copy()
    twin.values = {}
    for path, value in builder.values.items():
        if _field_of(path) not in fields:
            twin.values[path] = value
    for path, value in source.values.items():
        if _field_of(path) in fields:
            twin.values[path] = value
    return twin


def _field_of(path: Sequence[Any]) -> FieldPath:
    """Return the field of a change to which a value belongs: an entry or a dataset includes its options."""
    if path[0] in COMPONENTS:
        return tuple(path[:2])
    if is_dataset_option(tuple(path)):
        return DATASET
    for length in (2, 3):
        if tuple(path[:length]) in FIELDS:
            return tuple(path[:length])
    return tuple(path)


def _fields(section: Any, above: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of the fields that a change can consist of, in the order of the schema.

    A plugin entry with its options is one field per role, nested sections are entered, and dataset options and quirks
    are left out.

    Args:
        section: A class of a section, a pydantic model.
        above: The path of the section.
    """
    for name, info in section.model_fields.items():
        path = (*above, name)
        inner = info.annotation
        if path[0] in COMPONENTS:
            yield from ((name, role) for role in inner.model_fields)
        elif path in SECTION_ENTRIES:
            yield path
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, path)
        elif path not in (("data", "options"), (QUIRKS,)):  # plugins define what is inside
            yield path


FIELDS = tuple(_fields(RunConfig))
"""All fields except the options of quirks, which plugins define."""

QUIRK_OPTION = 3
"""Length of the path of an option of a quirk: ``quirks``, the quirk, the option."""


class Group(NamedTuple):
    """Fields that form one change; without a name, it is named by the fields that differ."""

    name: str
    fields: tuple[FieldPath, ...]


def _dependent_fields(field: FieldPath) -> Group:
    """Return the group of fields that depend on a field, or the field alone."""
    for fields in GROUPS:
        if field in fields:
            return Group("", fields)
    return Group("", (field,))


def _named_groups(
    groups: Mapping[str, Sequence[str]], location: SourceLocation
) -> dict[FieldPath, Group]:
    """Return the group of each field that the file puts into a group; other fields are absent.

    A path of a section, such as ``train``, stands for all its fields. A path to an option of a quirk is not checked.

    Args:
        groups: Dotted paths by the name of their group.
        location: Location of the groups in the experiment file.

    Raises:
        HeadToHeadError: If a path is no field, or a field is named twice, also within one group.
    """
    name_of: dict[FieldPath, str] = {}
    for name, paths in groups.items():
        for position, dotted in enumerate(paths):
            path = tuple(dotted.split("."))
            matching = [field for field in FIELDS if field[: len(path)] == path]
            if path[0] == QUIRKS and len(path) == QUIRK_OPTION:
                matching = [path]
            if not matching:
                names = [".".join(field) for field in FIELDS]
                raise location.child(name, position).error(
                    f"unknown field '{dotted}'{nearest(dotted, names)}"
                )
            for field in matching:
                if field in name_of:
                    raise location.child(name, position).error(
                        f"'{'.'.join(field)}' already belongs to '{name_of[field]}'"
                    )
                name_of[field] = name
    fields_of: dict[str, list[FieldPath]] = {}
    for field, name in name_of.items():
        fields_of.setdefault(name, []).append(field)
    return {field: Group(name, tuple(fields_of[name])) for field, name in name_of.items()}


def _label_of_fields(builder: ConfigBuilder, fields: Sequence[FieldPath]) -> Scalar:
    """Return the label of a change in a configuration: the values of the change's fields.

    The dataset is its name with its options, ``model.d_ff`` is as written, such as ``4x``, and other values are
    resolved. A field without a value, or with an empty text, is ``nothing``. The label of one field is not changed to a
    text; the labels of several fields are joined, such as ``epochs 3, steps nothing``.

    Raises:
        HeadToHeadError: If the configuration has an unknown name or field, or a wrong type.
    """
    config = builder.build()
    labels = []
    for field in fields:
        label: Scalar
        if field == DATASET:
            label = entry_label(EntryConfig(name=config.data.dataset, options=config.data.options))
        elif field == ("model", "d_ff"):
            label = builder.value(*field) or label_at(config, field)
        else:
            label = label_at(config, field)
        labels.append("nothing" if label in ("", None) else label)
    if len(labels) == 1:
        return labels[0]
    parts = [f"{field[-1]} {text(label)}" for field, label in zip(fields, labels, strict=True)]
    return ", ".join(parts)


NO_VALUE = "none"
"""The phrase of a change whose fields have no value in a configuration."""


def _phrase_of_fields(builder: ConfigBuilder, fields: Sequence[FieldPath]) -> str:
    """Return what people call the values of a change's fields in a configuration, joined by commas.

    Of several fields, those without a value, or with an empty text, are left out; `NO_VALUE` if all are. ``model.d_ff``
    is as written, such as ``4x``; other values are resolved.

    Raises:
        HeadToHeadError: If the configuration has an unknown field or a wrong type.
    """
    config = builder.build()
    phrases = []
    for field in fields:
        if field == DATASET:
            chosen = EntryConfig(name=config.data.dataset, options=config.data.options)
            phrases.append(entry_phrase("dataset", chosen))
        elif field == ("model", "d_ff"):
            written = builder.value(*field) or config.model.d_ff
            phrases.append(field_phrase("d_ff", ModelConfig.model_fields["d_ff"], written))
        elif len(fields) == 1 or label_at(config, field) not in ("", None):
            phrases.append(phrase_at(config, field))
    return ", ".join(phrases) or NO_VALUE


def names_of_changes(
    changes: Mapping[str, Sequence[FieldPath]], groups: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return what people call each change: the name of its group in the file, else that of its first field."""
    names = {}
    for name, fields in changes.items():
        names[name] = name if name in groups else axis_name(fields[0])
    return names
