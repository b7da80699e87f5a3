"""Variants, which an experiment compares, and the axes in which they differ."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headtohead.config.builder import named_parts
from headtohead.config.identity import run_identity
from headtohead.config.labels import Scalar, scalar, text
from headtohead.config.source_location import SourceLocation, shown
from headtohead.config.validation_errors import suggest_field
from headtohead.errors import nearest
from headtohead.planning.naming import Combination
from headtohead.plugins.families import COMPONENTS
from headtohead.schema.run_config import QUIRKS, SECTIONS, RunConfig
from headtohead.schema.sections import NotHashed

Match = Literal["none", "parameters", "flops", "baseline-parameters", "baseline-flops"]
MATCHES: tuple[Match, ...] = get_args(Match)

MATCH_AXIS = "match"
"""Axis that is not a configuration field: the count that ``d_ff`` is changed to match."""

RECIPE_AXIS = "recipe"
"""Axis that is not a configuration field: the recipe that ``base`` is merged over.

A value is a recipe's name, or a mapping of ``name`` and fields; the fields override ``base``.
"""

DATA_AXIS = "data"
"""Axis of whole data sections: a value is a dataset's name, or a mapping of ``dataset`` and fields.

The fields are merged over ``base.data``. Scores of different values are not compared with each other.
"""

SIZE_AXIS = "size"
"""Axis of the entries of ``sizes``. Scores of different sizes are compared by `order_transfer` only."""


def comparison_group(axes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the values of the axes whose scores are not compared with each other: data and size."""
    return {axis: axes[axis] for axis in (DATA_AXIS, SIZE_AXIS) if axis in axes}


@dataclass(frozen=True)
class Variant:
    """A complete configuration without its seed, with its slug, title, axis values and their phrases."""

    slug: str
    title: str
    axes: Mapping[str, Scalar]
    config: RunConfig
    match: Match = "none"
    phrases: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def combination(self) -> Combination:
        """The axis values and their phrases."""
        return Combination(self.axes, self.phrases)


def variant_key(config: RunConfig, match: Match) -> str:
    """Return a text that is equal for equal combinations.

    The data section stands for the data hash, which is unknown before the data is prepared.
    """
    return json.dumps(
        [run_identity(config, ""), config.data.model_dump(mode="json"), match], sort_keys=True
    )


def check_axis(axis: str, values: Sequence[Any], location: SourceLocation) -> None:
    """Raise unless an axis can be one of a design and has a list of values.

    The values in the list, and whether a section has the field, are not checked.

    Args:
        axis: ``match``, ``recipe``, ``data``, a family of components, or a dotted path.
        values: The values as written.
        location: Location of the values in the file.

    Raises:
        HeadToHeadError: For an unknown axis, a section other than ``data``, a field that no result depends on, and for
            values that are no list, or an empty one.
    """
    section, _, field = axis.partition(".")
    sections = [*COMPONENTS, *SECTIONS, QUIRKS]
    special_axes = [MATCH_AXIS, RECIPE_AXIS]
    if axis not in special_axes and section not in sections:
        hint = suggest_field(axis, [*sections, *special_axes], "base")
        raise location.error(f"unknown axis '{axis}'{hint}")
    if axis == QUIRKS:
        raise location.error(
            f"'{axis}' is a section, not an axis; name an option of a quirk, such as {QUIRKS}.NAME.OPTION"
        )
    if axis in SECTIONS and axis != DATA_AXIS:
        example = f"{axis}.{next(iter(SECTIONS[axis].model_fields))}"
        raise location.error(
            f"'{axis}' is a section, not an axis; name a field of it, such as {example}"
        )
    if is_runtime(section, field):
        raise location.error(f"'{axis}' does not change any result; remove it from the design")
    if not values or not isinstance(values, list):
        raise location.error(f"axis '{axis}' requires a list of values, got {shown(values)}")


def check_match(value: Any, location: SourceLocation) -> Match:
    """Return a value of the axis ``match``, which is one of ``MATCHES``.

    Raises:
        HeadToHeadError: If it is another value.
    """
    for match in MATCHES:
        if value == match:
            return match
    hint = nearest(str(value), MATCHES)
    raise location.error(f"expected one of {', '.join(MATCHES)}, got {shown(value)}{hint}")


def label_of_recipe(value: Any, location: SourceLocation) -> str:
    """Return the label of a recipe: its name, and the fields that are written beside the name.

    The file and the address of the data, and fields that no result depends on, are left out.

    Args:
        value: The name, or a mapping with the name under ``name`` and fields by dotted path.
        location: Location of the value in the file.

    Raises:
        HeadToHeadError: If the value is no name and no such mapping.
    """
    name, fields = named_parts(value, location, "name")
    shown = {}
    for path, setting in fields.items():
        section, _, rest = path.partition(".")
        field = rest.partition(".")[0]
        is_place_of_data = path in ("data.file", "data.url")
        if not is_place_of_data and not is_runtime(section, field):
            shown[path] = setting
    return _label_of_parts(name, shown)


def label_of_data(value: Any, location: SourceLocation) -> str:
    """Return the label of a data section: the dataset, and the fields that are written beside it, files included.

    Args:
        value: The name of the dataset, or a mapping with the name under ``dataset`` and fields.
        location: Location of the value in the file.

    Raises:
        HeadToHeadError: If the value is no name and no such mapping.
    """
    name, fields = named_parts(value, location, "dataset")
    shown = {}
    for field, setting in fields.items():
        if not is_runtime("data", field):
            shown[field] = setting
    return _label_of_parts(name, shown)


def _label_of_parts(name: str, fields: Mapping[str, Any]) -> str:
    """Return a name with fields; of a dotted path, the label has the last part."""
    if not fields:
        return name
    parts = []
    for path, setting in fields.items():
        field = path.rpartition(".")[2]
        parts.append(f"{field}={text(scalar(setting))}")
    return f"{name}({', '.join(parts)})"


def is_runtime(section: str, field: str = "") -> bool:
    """Return whether no result depends on a field."""
    if section not in SECTIONS:
        return False
    info = SECTIONS[section].model_fields.get(field)
    return info is not None and any(isinstance(mark, NotHashed) for mark in info.metadata)
