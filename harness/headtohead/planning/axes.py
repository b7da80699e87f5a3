"""Axes of a design: a plugin family, a configuration field, ``data``, ``match`` or ``recipe``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

from headtohead.config.builder import FAMILIES, ConfigBuilder, named_parts
from headtohead.config.labels import scalar, text
from headtohead.config.source_location import SourceLocation, shown
from headtohead.config.validation_errors import suggest_field
from headtohead.errors import nearest
from headtohead.schema.run_config import INIT_FROM, SECTIONS
from headtohead.schema.sections import NotHashed

Match = Literal["none", "parameters", "flops"]

MATCH_AXIS = "match"
"""Axis that is not a configuration field: the count that ``d_ff`` is widened to match."""

RECIPE_AXIS = "recipe"
"""Axis that is not a configuration field: the recipe that ``base`` is merged over.

A value is a recipe's name, or a mapping of ``name`` and fields; the fields override ``base``.
"""

DATA_AXIS = "data"
"""Axis of whole data sections: a value is a dataset's name, or a mapping of ``dataset`` and fields.

The fields are merged over ``base.data``. Scores of different values are not compared with each other.
"""


def check_axis(axis: str, values: Sequence[Any], location: SourceLocation) -> None:
    """Raise an error for an unknown axis, a field that no result depends on, or an empty list of values."""
    path = tuple(axis.split("."))
    known = [*FAMILIES, *SECTIONS, INIT_FROM, MATCH_AXIS, RECIPE_AXIS]
    if axis not in known and path[0] not in known[:-2]:
        raise location.error(f"unknown axis '{axis}'{suggest_field(axis, known, 'base')}")
    if axis in SECTIONS and axis != DATA_AXIS:
        raise location.error(
            f"'{axis}' is a section, not an axis; name a field of it, "
            f"such as {axis}.{next(iter(SECTIONS[axis].model_fields))}"
        )
    if _is_runtime(path):
        raise location.error(f"'{axis}' does not change any result; remove it from the design")
    if not values or not isinstance(values, list):
        raise location.error(f"axis '{axis}' requires a list of values, got {shown(values)}")


def assign_data(builder: ConfigBuilder, value: Any, location: SourceLocation) -> None:
    """Merge a value of the axis ``data`` over the data section of a builder."""
    name, fields = named_parts(value, location, "dataset")
    builder.assign((DATA_AXIS, "dataset"), name, location if isinstance(value, str) else location.child("dataset"))
    builder.assign((DATA_AXIS,), fields, location)


def recipe_label(value: Any, location: SourceLocation) -> str:
    """Return the label of a value of the axis ``recipe``: the recipe's name and the changed fields."""
    name, fields = named_parts(value, location, "name")
    changed = [
        (field.rsplit(".", 1)[-1], setting)
        for field, setting in fields.items()
        if not _is_runtime(tuple(field.split("."))) and field not in ("data.file", "data.url")
    ]
    return _label(name, changed)


def data_label(value: Any, location: SourceLocation) -> str:
    """Return the label of a value of the axis ``data``: the dataset's name and the fields given with it."""
    name, fields = named_parts(value, location, "dataset")
    return _label(name, fields.items())


def _label(name: str, fields: Iterable[tuple[str, Any]]) -> str:
    given = ", ".join(f"{field}={text(scalar(setting))}" for field, setting in fields)
    return f"{name}({given})" if given else name


def match_value(value: Any, location: SourceLocation) -> Match:
    """Return a checked value of the axis ``match``."""
    known = get_args(Match)
    if value not in known:
        hint = nearest(value, known) if isinstance(value, str) else ""
        raise location.error(f"expected one of {', '.join(known)}, got {shown(value)}{hint}")
    return cast("Match", value)


def _is_runtime(path: tuple[str, ...]) -> bool:
    section = SECTIONS.get(path[0])
    info = section.model_fields.get(path[1]) if section and path[1:] else None
    return info is not None and any(isinstance(mark, NotHashed) for mark in info.metadata)
