"""Labels of axis values in tables, titles and the names of run directories."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headtohead.config.builder import FAMILIES
from headtohead.plugins.registry import current
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import SHORTHANDS, EntryConfig, PerSide, RunConfig

Scalar = str | int | float | bool | None

NAMED_AXES = (*FAMILIES, "recipe", "data", "size")
"""Axes whose values are names, so that a slug does not repeat the axis."""

MAX_SLUG = 120
"""Maximum characters of a slug; a run directory's name adds seed and run hash, and may have 255."""


def value_at(config: RunConfig, path: tuple[str, ...]) -> Any:
    """Return the value of an axis in a run configuration, as plain data.

    ``model.layers`` has the value of the fields that it sets, or a list of their values if they differ. An option
    without a role has the value of the first role that has it.
    """
    if path in SHORTHANDS:
        section = getattr(config, path[0])
        values = [getattr(section, name) for name in SHORTHANDS[path]]
        return values[0] if len(set(values)) == 1 else values
    head, *rest = path
    section = getattr(config, head)
    value: Any = section.model_dump(mode="json") if section is not None else None
    if head == "data" and rest and rest[0] not in value:
        rest = ["options", *rest]
    if head in FAMILIES and rest and rest[0] not in ROLES:
        rest = [
            next((role for role in value if rest[0] in value[role]["options"]), next(iter(value))),
            *rest,
        ]
    if head in FAMILIES and rest[1:] and rest[1] != "name":
        rest = [rest[0], "options", *rest[1:]]
    if len(rest) == 1 and rest[0] not in value and rest[0] in type(section).model_fields:
        return getattr(section, rest[0])  # omitted at its default
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def label_at(config: RunConfig, path: tuple[str, ...]) -> Scalar:
    """Return the value of an axis in a run configuration with parsed options, as a scalar."""
    if path[0] in FAMILIES and len(path) == 1:
        if len(config.roles) == 1:
            return entry_label(getattr(config, path[0]).decoder)
        return _family_label(path[0], getattr(config, path[0]))
    if path[0] in FAMILIES and path[1] in ROLES and path[2:] in ((), ("name",)):
        return entry_label(getattr(config, path[0]).role(path[1]))
    return scalar(value_at(config, path))


def entry_label(entry: EntryConfig) -> str:
    """Return an entry's name with the options that differ from their defaults; ``+`` joins entries of a pattern."""
    if entry.next_layers:
        return "+".join(map(entry_label, entry.pattern))
    options = entry.options.model_dump(mode="json", exclude_defaults=True)
    changed = [f"{name}={text(scalar(value))}" for name, value in options.items()]
    return f"{entry.name}({', '.join(changed)})" if changed else entry.name


def _family_label(family: str, roles: PerSide) -> str:
    """Return the single name that expands to these roles, else the names by role joined with ``/``."""
    labels = {role: entry_label(entry) for role, entry in roles.by_role().items()}
    for role in sorted(labels, key=("decoder", "encoder", "cross").index):
        name = roles.role(role).name
        defaults = current().find(family, name).entry.role_defaults
        own = [other for other in labels if defaults.get(other, name) == name]
        if own and labels == {
            other: labels[own[0]] if other in own else defaults[other] for other in labels
        }:
            return labels[own[0]]
    return "/".join(labels.values())


def slug_of(axes: Mapping[str, Scalar]) -> str:
    """Join axis values to a name of ``a-z 0-9 . _ -``; a field's name precedes its value."""
    last = [axis.rsplit(".", 1)[-1] for axis in axes]
    parts = []
    for axis, value in axes.items():
        short = axis.rsplit(".", 1)[-1]
        name = short if last.count(short) == 1 and axis.split(".")[0] not in FAMILIES else axis
        word = slug_word(value)
        parts.append(word if axis in NAMED_AXES else f"{slug_word(name)}-{word}")
    return shortened_slug("-".join(parts) or "baseline")


def shortened_slug(slug: str, source: str = "") -> str:
    """Truncate a long slug and append a hash that keeps it unique, of ``source`` or of the full slug.

    With ``source``, a short slug has the hash too.
    """
    if len(slug) <= MAX_SLUG and not source:
        return slug
    return f"{slug[: MAX_SLUG - 9]}-{hashlib.sha256((source or slug).encode()).hexdigest()[:8]}"


def slug_word(value: Scalar) -> str:
    """Format a value with the characters of a slug."""
    word = re.sub(r"[^a-z0-9._]+", "-", text(value).lower()).strip("-.")
    return word or "empty"


def title_of(axes: Mapping[str, Scalar]) -> str:
    """Join axis values for display: ``rotary · split-heads · d_model 64``."""
    return " · ".join(title_part(axis, value) for axis, value in axes.items()) or "baseline"


def title_part(axis: str, value: Scalar) -> str:
    """Return an axis value for display; a value that is no name has its field."""
    return (
        str(value)
        if axis in NAMED_AXES and value != "none"
        else f"{axis.removeprefix('model.')} {text(value)}"
    )


def titles_of(variants: Sequence[Mapping[str, Scalar]], groups: Collection[str]) -> list[str]:
    """Return a title for each variant: what differs from the first, the baseline, such as ``rotary + gated``.

    The first has its own values, and the same variant in another group is ``baseline``. The values of the axes
    ``groups`` are appended. A named option, such as ``attention.first``, is shown without its field. Equal titles are
    replaced by those with all axes.

    >>> titles_of([{"attention.first": "a", "model.heads": 2}, {"attention.first": "b", "model.heads": 2}], ())
    ['a · heads 2', 'b']
    """

    def part(axis: str, value: Scalar) -> str:
        family, _, field = axis.partition(".")
        is_option = family in FAMILIES and field and field.split(".")[0] not in ROLES
        return (
            value
            if is_option and isinstance(value, str) and value != "none"
            else title_part(axis, value)
        )

    def title(axes: Mapping[str, Scalar]) -> str:
        own = {axis: value for axis, value in axes.items() if axis not in groups}
        changed = " + ".join(
            part(axis, value) for axis, value in own.items() if value != baseline[axis]
        )
        ends = [title_part(axis, axes[axis]) for axis in axes if axis in groups]
        values = (
            ["baseline"]
            if axes != baseline
            else dict.fromkeys(part(axis, value) for axis, value in own.items())
        )
        starts = [changed] if changed else [*values]
        return " · ".join([*starts, *ends]) or "baseline"

    baseline = variants[0]
    titles = [title(axes) for axes in variants]
    return [
        name if titles.count(name) == 1 else title_of(axes)
        for name, axes in zip(titles, variants, strict=True)
    ]


def axis_value(axis: Sequence[str], labels: Mapping[str, Scalar]) -> Scalar:
    """Return the value of an axis; those of a ``zip`` are joined as in a title, with the names of their fields."""
    return labels[axis[0]] if len(axis) == 1 else title_of({path: labels[path] for path in axis})


def text(value: Scalar) -> str:
    """Format a scalar as in YAML, whole numbers without ``.0``."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Join names as in a sentence; beyond ``most`` names, the number of the others follows. A single other is named.

    >>> listed("abcde"), listed("abcde", most=2)
    ('a, b, c, d and e', 'a, b and 3 more')
    """
    if most is not None and len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def scalar(value: Any) -> Scalar:
    """Return a scalar unchanged, and lists and mappings as text."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text(scalar(item))}" for name, item in value.items())
    return ",".join(text(scalar(item)) for item in value)
