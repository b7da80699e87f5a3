"""Labels of axis values in tables, titles and the names of run directories."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headtohead.config.builder import SECTION_ENTRIES
from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import find_entry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import QUIRKS, SHORTHANDS, EntryConfig, PerSide, RunConfig

Scalar = str | int | float | bool | None

NAMED_AXES = (*COMPONENTS, "recipe", "data", "size")
"""Axes whose values are names, so that a slug does not repeat the axis."""

MAX_SLUG = 120
"""Maximum characters of a slug; a run directory's name adds seed and run hash, and may have 255."""


def value_at(config: RunConfig, path: tuple[str, ...]) -> Any:
    """Return the value of an axis in a run configuration, as plain data.

    ``model.layers`` has the value of the fields that it sets, or a list of their values if they differ. An option
    without a role has the value of the first role that has it.
    """
    if path[0] == QUIRKS:
        return _quirk_value(config, *path[1:])
    section = getattr(config, path[0])
    if path in SHORTHANDS:
        values = [getattr(section, name) for name in SHORTHANDS[path]]
        if len(set(values)) == 1:
            return values[0]
        return values
    value: Any = section.model_dump(mode="json")
    rest = _stored_path(path, value)
    if len(rest) == 1 and rest[0] not in value and rest[0] in type(section).model_fields:
        return getattr(section, rest[0])  # omitted at its default
    for part in rest:
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _quirk_value(config: RunConfig, name: str, option: str | None = None) -> Any:
    """Return the value of an option of a quirk, or all options; the defaults if the configuration lacks the quirk."""
    options = config.quirks.get(name) or find_entry("quirk", name).entry.Options()
    values = options.model_dump(mode="json")
    if option is None:
        return values
    return values[option]


def _stored_path(path: tuple[str, ...], section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of an axis's value inside its section, with the roles and options that the axis leaves out."""
    head, *inside = path
    if head in COMPONENTS:
        return _stored_in_component(tuple(inside), section)
    if path[:2] in SECTION_ENTRIES and inside[1:] and inside[1] != "name":
        return (inside[0], "options", *inside[1:])
    if head == "data" and inside and inside[0] not in section:
        return ("options", *inside)
    return tuple(inside)


def _stored_in_component(inside: tuple[str, ...], roles: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path after the family; the first role that has an option stands for an option without a role."""
    if inside and inside[0] not in ROLES:
        role = next(iter(roles))
        for other in roles:
            if inside[0] in roles[other]["options"]:
                role = other
                break
        inside = (role, *inside)
    if inside[1:] and inside[1] != "name":
        return (inside[0], "options", *inside[1:])
    return inside


def label_at(config: RunConfig, path: tuple[str, ...]) -> Scalar:
    """Return the value of an axis in a run configuration with parsed options, as a scalar."""
    section = getattr(config, path[0])
    if path[0] in COMPONENTS and len(path) == 1:
        if len(config.roles) == 1:
            return entry_label(section.decoder)
        return _family_label(path[0], section)
    if path[0] in COMPONENTS and path[1] in ROLES and path[2:] in ((), ("name",)):
        return entry_label(getattr(section, path[1]))
    if path in SECTION_ENTRIES:
        return entry_label(getattr(section, path[1]))
    return scalar(value_at(config, path))


def entry_label(entry: EntryConfig) -> str:
    """Return an entry's name with the options that differ from their defaults; ``+`` joins entries of a pattern."""
    if entry.next_layers:
        return "+".join(entry_label(each) for each in entry.pattern)
    options = entry.options.model_dump(mode="json", exclude_defaults=True)
    if not options:
        return entry.name
    changed = [f"{name}={text(scalar(value))}" for name, value in options.items()]
    return f"{entry.name}({', '.join(changed)})"


def single_entry(family: str, roles: PerSide) -> EntryConfig | None:
    """Return the entry whose name alone expands to these roles; None if several names are needed."""
    entries = roles.by_role()
    labels = {role: entry_label(entry) for role, entry in entries.items()}
    for role in ("decoder", "encoder", "cross"):
        if role not in entries:
            continue
        name = entries[role].name
        defaults = find_entry(family, name).entry.role_defaults
        selected = [role for role in labels if defaults.get(role, name) == name]
        if not selected:
            continue
        expanded = {}
        for other in labels:
            expanded[other] = labels[selected[0]] if other in selected else defaults[other]
        if labels == expanded:
            return entries[selected[0]]
    return None


def _family_label(family: str, roles: PerSide) -> str:
    """Return the single name that expands to these roles, else the names by role joined with ``/``."""
    single = single_entry(family, roles)
    if single is not None:
        return entry_label(single)
    return "/".join(entry_label(entry) for entry in roles.by_role().values())


def slug_of(axes: Mapping[str, Scalar]) -> str:
    """Join axis values to a name of ``a-z 0-9 . _ -``; a field's name precedes its value."""
    fields = [_field(axis) for axis in axes]
    parts = []
    for axis, value in axes.items():
        word = slug_word(value)
        if axis in NAMED_AXES:
            parts.append(word)
            continue
        name = _field(axis)
        if axis.split(".")[0] in COMPONENTS or fields.count(name) > 1:
            name = axis
        parts.append(f"{slug_word(name)}-{word}")
    return shortened_slug("-".join(parts) or "baseline")


def _field(axis: str) -> str:
    """Return the last part of an axis: ``d_model`` of ``model.d_model``."""
    return axis.rpartition(".")[2]


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


def axis_value(axis: Sequence[str], labels: Mapping[str, Scalar]) -> Scalar:
    """Return the value of an axis; those of a ``zip`` are joined to a text, with their paths."""
    if len(axis) == 1:
        return labels[axis[0]]
    return ", ".join(f"{path} {text(labels[path])}" for path in axis)


def text(value: Scalar) -> str:
    """Format a scalar as in YAML, whole numbers without ``.0``."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value)


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Join names as in a sentence, those that contain a comma or *and* in quotes.

    Beyond ``most`` names, the number of the others follows. A single other is named.

    >>> listed("abcde"), listed("abcde", most=2)
    ('a, b, c, d and e', 'a, b and 3 more')
    >>> listed(["rotary", "rotary, with biases", "without positions"])
    'rotary, “rotary, with biases” and without positions'
    """
    return joined(separable(names), most)


def separable(names: Sequence[str]) -> list[str]:
    """Return several names with quotes around those that contain a comma or *and*; a single name unchanged."""
    if len(names) == 1:
        return [*names]
    return [f"“{name}”" if ", " in name or " and " in name else name for name in names]


def joined(parts: Sequence[str], most: int | None = None) -> str:
    """Join parts as in a sentence, as they are; ``most`` as in `listed`."""
    if most is not None and len(parts) > most + 1:
        parts = [*parts[:most], f"{len(parts) - most} more"]
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def scalar(value: Any) -> Scalar:
    """Return a scalar unchanged, and lists and mappings as text."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text(scalar(item))}" for name, item in value.items())
    return ",".join(text(scalar(item)) for item in value)
