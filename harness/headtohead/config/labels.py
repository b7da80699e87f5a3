"""Labels of axis values in tables, titles and the names of run directories."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headtohead.config.builder import FAMILIES
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import INIT_FROM, SHORTHANDS
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import EntryConfig, PerRole, RunConfig

Scalar = str | int | float | bool | None

NAMED_AXES = (*FAMILIES, "recipe", "data")
"""Axes whose values are names, so that a slug does not repeat the axis."""

LONGEST_SLUG = 120
"""Maximum characters of a slug; a run directory's name adds seed and run hash, and may have 255."""


def value_at(config: RunConfig, path: tuple[str, ...]) -> Any:
    """Return the value of an axis in a run configuration, as plain data.

    ``model.layers`` has the value of the fields that it sets, or a list of their values if they differ.
    """
    if path[0] in FAMILIES:
        return _family_value(getattr(config, path[0]), path)
    if path in SHORTHANDS:
        section = getattr(config, path[0])
        values = [getattr(section, name) for name in SHORTHANDS[path]]
        return values[0] if len(set(values)) == 1 else values
    value: Any = config.model_dump(mode="json")
    if path[0] == "data" and path[1] not in value["data"]:
        path = ("data", "options", *path[1:])
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def label_at(config: RunConfig, path: tuple[str, ...], registry: Registry) -> Scalar:
    """Return the value of an axis in a run configuration as a scalar."""
    if path[0] == INIT_FROM:
        return config.init_from.run if config.init_from else "none"
    if path[0] not in FAMILIES:
        return scalar(value_at(config, path))
    roles: PerRole = getattr(config, path[0])
    if len(path) == 1:
        return _family_label(path[0], roles, registry)
    if path[1] in ROLES and path[2:] in ((), ("name",)):
        return entry_label(path[0], roles.role(path[1]), registry)
    return scalar(_family_value(roles, path))


def entry_label(family: str, entry: EntryConfig, registry: Registry) -> str:
    """Return an entry's name with the options that differ from their defaults."""
    defaults = _defaults(family, entry.name, registry)
    changed = [f"{name}={text(scalar(value))}" for name, value in entry.options.items() if value != defaults.get(name)]
    return f"{entry.name}({', '.join(changed)})" if changed else entry.name


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


def shortened_slug(slug: str) -> str:
    """Truncate a long slug and append a hash of the full slug, which keeps it unique."""
    if len(slug) <= LONGEST_SLUG:
        return slug
    return f"{slug[: LONGEST_SLUG - 9]}-{hashlib.sha256(slug.encode()).hexdigest()[:8]}"


def slug_word(value: Scalar) -> str:
    """Format a value with the characters of a slug."""
    word = re.sub(r"[^a-z0-9._]+", "-", text(value).lower()).strip("-.")
    return word or "empty"


def title_of(axes: Mapping[str, Scalar]) -> str:
    """Join axis values for display: ``rotary · split-heads · d_model 64``."""
    parts = [
        str(value) if axis in NAMED_AXES else f"{axis.removeprefix('model.')} {text(value)}"
        for axis, value in axes.items()
    ]
    return " · ".join(parts) or "baseline"


def text(value: Scalar) -> str:
    """Format a scalar as in YAML, whole numbers without ``.0``."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def listed(names: Sequence[str], conjunction: str = "and", most: int | None = None) -> str:
    """Join names as in a sentence; beyond ``most`` names, the number of the others follows. A single other is named.

    >>> listed("abcde"), listed("abcde", "or", most=2)
    ('a, b, c, d and e', 'a, b or 3 more')
    """
    if most is not None and len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return f" {conjunction} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def shortened(names: Sequence[str], most: int) -> str:
    """Join names with commas; beyond ``most`` names, as `listed`."""
    return ", ".join(names) if len(names) <= most + 1 else listed(names, most=most)


def _family_value(roles: PerRole, path: tuple[str, ...]) -> Any:
    """Return a family, a role, or an option (of a role, or of the first role that has it)."""
    if len(path) == 1:
        return roles.model_dump(mode="json")
    if path[1] not in ROLES:
        values = [entry.options.get(path[1]) for entry in roles.by_role().values()]
        return next((value for value in values if value is not None), None)
    entry = roles.role(path[1])
    if len(path) == 2:
        return entry.model_dump(mode="json")
    return entry.name if path[2] == "name" else entry.options.get(path[2])


def _family_label(family: str, roles: PerRole, registry: Registry) -> str:
    """Return the single name that expands to these roles, else the names by role joined with ``/``."""
    entries = roles.by_role()
    for name in dict.fromkeys(entries[role].name for role in sorted(entries, key="decoder".__ne__)):
        role_defaults = registry.find(family, name).entry.role_defaults
        own = [other for other in entries if role_defaults.get(other, name) == name]
        if (
            all(entry.name == role_defaults.get(other, name) for other, entry in entries.items())
            and len({json.dumps(entries[other].options) for other in own}) == 1
            and all(_is_default(family, entries[other], registry) for other in entries if other not in own)
        ):
            return entry_label(family, entries[own[0]], registry)
    return "/".join(entry_label(family, entry, registry) for entry in entries.values())


def _is_default(family: str, entry: EntryConfig, registry: Registry) -> bool:
    return entry.options == _defaults(family, entry.name, registry)


def _defaults(family: str, name: str, registry: Registry) -> dict[str, Any]:
    fields = registry.find(family, name).entry.Options.model_fields
    return {
        option: info.get_default(call_default_factory=True) for option, info in fields.items() if not info.is_required()
    }


def scalar(value: Any) -> Scalar:
    """Return a scalar unchanged, and lists and mappings as text."""
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text(scalar(item))}" for name, item in value.items())
    return ",".join(text(scalar(item)) for item in value)
