"""The settings that a sweep of ``tune`` tries: the values of the file, or those around the value of the baseline."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headtohead.config.builder import SECTION_ENTRIES, assignment_order
from headtohead.config.labels import Scalar, label_at, text, value_at
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation, shown
from headtohead.config.validation_errors import find_field
from headtohead.planning.between import END, START
from headtohead.planning.design import Design, Written, located_values, sized_fields
from headtohead.schema.experiment_file import AUTO_FACTORS
from headtohead.schema.run_config import (
    MEMBER_FIELDS,
    SHORTHANDS,
    EntryConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    changed,
)

Field = tuple[str, str]
"""Section and name of a configuration field."""

MAX_FACTOR = 2**10
"""Largest factor between the baseline's value and a value of ``auto``."""

NO_NUMBER = "auto needs a number above 0 in base, got {value}; list the values"
DIFFERENT_FIELDS = (
    "auto needs a single number in base, but the fields of '{path}' have {values}; list the values"
)


@dataclass(frozen=True)
class TuningSetting:
    """A setting of the sweep: its value by field, and the fields to change by section.

    ``is_further`` is whether it is beyond the settings of the experiment file.
    """

    values: Mapping[str, Scalar]
    changes: Mapping[str, Mapping[str, Any]]
    is_further: bool = False

    @property
    def name(self) -> str:
        """The setting as a short label."""
        return ", ".join(f"{_last(path)} {text(value)}" for path, value in self.values.items())

    @property
    def slug(self) -> str:
        """The setting as part of a slug."""
        return "-".join(f"{_last(path)}-{text(value)}" for path, value in self.values.items())

    @property
    def is_valid(self) -> bool:
        """Whether the fields and options can have these values."""
        try:
            ModelConfig.model_validate(self.changes.get("model", {}))
            TrainConfig.model_validate(self.changes.get("train", {}))
            for values in self.changes.values():
                for value in values.values():
                    if isinstance(value, EntryConfig):
                        type(value.options).model_validate(value.options.model_dump())
        except ValidationError:
            return False
        return True

    def apply(self, config: RunConfig) -> RunConfig:
        """Return the configuration with this setting."""
        return changed(config, **self.changes)

    def with_value(self, path: str, value: float) -> TuningSetting:
        """Return a setting with another number of a tuned field, rounded if the present value is a whole number.

        If ``path`` is a shorthand, fields of it that are tuned by themselves keep their values. Nothing is validated.
        """
        fields = _fields_of(path)
        for tuned_path in self.values:
            if _fields_of(tuned_path) < _fields_of(path):
                fields = fields - _fields_of(tuned_path)
        number = _like(self.values[path], value)
        _, _, *option_parts = path.split(".")  # below section and field
        option = ".".join(option_parts)
        changes = {section: dict(values) for section, values in self.changes.items()}
        for section, name in fields:
            changes[section][name] = _with_number(changes[section][name], option, number)
        return TuningSetting({**self.values, path: number}, changes)


def _with_number(value: Any, option: str, number: float) -> Any:
    """Return the value of a field with another number, or an entry with another number of an option."""
    if not isinstance(value, EntryConfig):
        return _like(value, number)
    options = value.options.model_copy(update={option: number})
    return value.model_copy(update={"options": options})


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def settings_of(loaded: LoadedExperiment, design: Design) -> tuple[TuningSetting, ...]:
    """Return the settings of the experiment file's ``tune`` section: every combination of the values of its fields.

    The values of the last field change first. Of combinations that are equal after validation, the first is returned.

    Raises:
        HeadToHeadError: With the location in the file: if there is no field; if a field cannot be tuned, or the design
            or ``sizes`` set it; if its values are no list, contain one twice or are invalid; or if ``auto`` is not
            possible for it.
    """
    tune = loaded.file.tune
    assert tune is not None
    location = loaded.location("tune")
    for path in tune:
        _refuse_field(path, design, location.child(path))
    if not tune:
        raise location.error("tune has no field; add one, such as train.lr: [0.001, 0.003]")
    choices = []
    for path, values in tune.items():
        listed = _around(design, path, location) if values == "auto" else values
        choices.append(located_values({path: listed}, location, sized_fields(loaded)))
    settings: dict[tuple[Scalar, ...], TuningSetting] = {}
    for parts in itertools.product(*choices):
        written: dict[str, Written] = {}
        for part in parts:
            written |= part
        builder = design.start.copy()
        for path in sorted(written, key=assignment_order):
            builder.assign(tuple(path.split(".")), *written[path])
        setting = _setting(builder.build(), tune)
        # Values that are written differently but equal are one setting.
        settings.setdefault(tuple(setting.values.values()), setting)
    return tuple(settings.values())


def _setting(config: RunConfig, paths: Iterable[str]) -> TuningSetting:
    """Return the setting that a configuration has in the tuned fields."""
    labels = {}
    changes: dict[str, dict[str, Any]] = {}
    for path in paths:
        labels[path] = label_at(config, tuple(path.split(".")))
        for section, name in _fields_of(path):
            changes.setdefault(section, {})[name] = _value_of(config, (section, name))
    return TuningSetting(labels, changes)


def _refuse_field(path: str, design: Design, location: SourceLocation) -> None:
    """Raise a `HeadToHeadError` if a field cannot be tuned, or if the design compares its values."""
    allowed = ["model.dropout"]
    for section, names in MEMBER_FIELDS.items():
        allowed += [f"{section}.{name}" for name in names]
    is_option = tuple(path.split(".")[:2]) in SECTION_ENTRIES
    if path not in allowed and not is_option:
        field = find_field(path)
        hint = f"; use one of {', '.join(sorted(allowed))}"
        if field in allowed:
            hint = f"; did you mean '{field}'?"
        raise location.error(f"'{path}' cannot be tuned{hint}")
    if _is_compared(design, _fields_of(path)):
        raise location.error(f"the design compares values of '{path}'; remove it from tune")


def _is_compared(design: Design, fields: Collection[Field]) -> bool:
    """Return whether these fields are an axis of the design, or differ between the configurations of ``between``."""
    if not design.is_between:
        return any(_fields_of(axis) & {*fields} for axis in design.axes)
    start = design.variant(START).config
    end = design.variant(END).config
    return any(_value_of(start, field) != _value_of(end, field) for field in fields)


def _around(design: Design, path: str, location: SourceLocation) -> Sequence[float]:
    """Return the values of ``auto``: multiples of the value of the baseline that the field or option can have.

    They ascend. The factors are `AUTO_FACTORS`. For each multiple that the field cannot have, or that rounding makes
    equal to another, a further multiple is taken: by smaller factors down to 1 / ``MAX_FACTOR``, then by larger factors
    up to ``MAX_FACTOR``. If these do not suffice, there are fewer values than `AUTO_FACTORS`.

    Raises:
        HeadToHeadError: If the baseline's value is no number above 0, or the fields of a shorthand differ.
    """
    config = design.variant(design.baseline).config
    parts = tuple(path.split("."))
    value = value_at(config, parts)
    if parts in SHORTHANDS and isinstance(value, list):
        raise location.child(path).error(DIFFERENT_FIELDS.format(path=path, values=shown(value)))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value <= 0:
        raise location.child(path).error(NO_NUMBER.format(value=shown(value)))
    start = _setting(config, [path])
    smaller = AUTO_FACTORS[0]
    larger = AUTO_FACTORS[-1]
    factors = list(AUTO_FACTORS)
    while smaller > 1 / MAX_FACTOR:
        smaller /= 2
        factors.append(smaller)
    while larger < MAX_FACTOR:
        larger *= 2
        factors.append(larger)
    numbers: list[float] = []
    for factor in factors:
        number = _like(value, float(f"{factor * value:.6g}"))
        is_valid = start.with_value(path, number).is_valid
        if number > 0 and is_valid and number not in numbers and len(numbers) < len(AUTO_FACTORS):
            numbers.append(number)
    return sorted(numbers)


def _like(example: Any, value: float) -> float:
    """Return a value, rounded to a whole number if the example is one."""
    return round(value) if isinstance(example, int) else value


def _fields_of(path: str) -> set[Field]:
    """Return the fields that a path sets: the field, those of a shorthand, or the entry that has an option."""
    section, _, below = path.partition(".")
    name, _, _ = below.partition(".")
    return {(section, field) for field in SHORTHANDS.get((section, name), (name,))}


def _value_of(config: RunConfig, field: Field) -> Any:
    section, name = field
    return getattr(getattr(config, section), name)
