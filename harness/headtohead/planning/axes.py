"""What can vary: the names that an axis may have, and the two axes that are no fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from headtohead.config.builder import FAMILIES
from headtohead.config.labels import scalar, text
from headtohead.config.source_location import SourceLocation, shown
from headtohead.errors import nearest
from headtohead.schema.config_input import SECTIONS
from headtohead.schema.sections import NotHashed

Match = Literal["none", "parameters", "flops"]
MATCHES: tuple[Match, ...] = ("none", "parameters", "flops")

MATCH_AXIS = "match"
"""An axis that is not a field of a configuration: what its d_ff is widened to match."""

RECIPE_AXIS = "recipe"
"""An axis that is not a field of a configuration: the recipe that lies beneath base.

A value is a recipe's name, or a mapping of ``name`` and of fields that are laid over base for it.
"""

WHOLE_AXES = (MATCH_AXIS, RECIPE_AXIS)


def check_axis(axis: str, values: Sequence[Any], location: SourceLocation) -> None:
    """Refuse a name that is no axis, and an axis without values."""
    path = tuple(axis.split("."))
    if axis not in WHOLE_AXES and path[0] not in (*FAMILIES, *SECTIONS):
        known = [*FAMILIES, *SECTIONS, *WHOLE_AXES]
        raise location.error(f"unknown axis '{axis}'{nearest(axis, known)}")
    if path[0] in SECTIONS and len(path) == 1:
        raise location.error(f"an axis is a family or one field, such as {axis}.…; got '{axis}'")
    if _is_runtime(path):
        raise location.error(f"'{axis}' does not change a result and cannot be an axis")
    if not values:
        raise location.error("an axis needs at least one value")


def recipe_parts(value: Any, location: SourceLocation) -> tuple[str, dict[str, Any]]:
    """Return the name of a recipe and the fields given with it."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], {key: one for key, one in value.items() if key != "name"}
    raise location.error(f"expected the name of a recipe, or a mapping with 'name' and fields, got {shown(value)}")


def recipe_label(value: Any, location: SourceLocation) -> str:
    """Return what a value of the axis ``recipe`` is called: its name, and what was changed."""
    name, fields = recipe_parts(value, location)
    changed = [
        f"{key.rsplit('.', 1)[-1]}={text(scalar(one))}"
        for key, one in fields.items()
        if not _is_runtime(tuple(key.split("."))) and key != "data.file"
    ]
    return f"{name}({', '.join(changed)})" if changed else name


def match_value(value: Any, location: SourceLocation) -> Match:
    """Return a value of the axis ``match``, or raise for another one."""
    if value not in MATCHES:
        hint = nearest(value, MATCHES) if isinstance(value, str) else ""
        raise location.error(f"expected one of {', '.join(MATCHES)}, got {shown(value)}{hint}")
    return cast("Match", value)


def _is_runtime(path: tuple[str, ...]) -> bool:
    section = SECTIONS.get(path[0])
    info = section.model_fields.get(path[1]) if section else None
    return info is not None and any(isinstance(mark, NotHashed) for mark in info.metadata)
