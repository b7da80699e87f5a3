"""One-line messages for pydantic's validation errors, and suggestions for unknown fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headtohead.config.source_location import FieldPath, Source, SourceLocation, shown
from headtohead.errors import nearest, suggestion
from headtohead.schema.experiment_file import ExperimentFile
from headtohead.schema.run_config import SECTIONS, EntryConfig, RunConfig
from headtohead.synonyms import hint, synonyms

Model = TypeVar("Model", bound=BaseModel)


def checked(
    model: type[Model], value: Mapping[str, Any], locate: Callable[[FieldPath], SourceLocation]
) -> Model:
    """Validate without type conversion; errors start with the location that ``locate`` returns."""
    try:
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        path, message = format_validation_error(error, model, value)
        raise locate(path).error(message) from error


def suggest_field(name: str, known: Iterable[str], section: str | None = None) -> str:
    """Return ``"; did you mean 'lr'?"`` for an unknown field, from names of other tools and sections too.

    Args:
        name: The unknown field.
        known: Fields that are allowed instead.
        section: Section of a configuration in which the field was given; ``base`` for a field beside the sections,
            ``file`` outside base, and None for the options of an entry and for other mappings.
    """
    fields = [field for field in known if (section, field) != ("data", "options")]
    if section == "file" and hint(name):
        return f"; {hint(name)}"
    for wanted in [name, *_candidates(name, section)] if section else ():
        head, _, last = wanted.rpartition(".")
        if last in fields and head.partition(".")[0] in ("", section):
            return f"; did you mean '{last}'?"
        if wanted in configuration_fields():
            of_base = "" if head else ", a field of base"
            return (
                f"; did you mean 'base.{wanted}'?"
                if section == "file"
                else f"; did you mean '{wanted}'{of_base}?"
            )
        if wanted == "base":
            return "; leave it out: the fields here are those of base"
        if wanted in ExperimentFile.model_fields:
            return f"; write '{wanted}' at the top level of the experiment file, outside base"
    return nearest(name, fields)


def _candidates(name: str, section: str | None = None) -> list[str]:
    """Return the synonyms of a field, those of its section first, and the fields of this name in sections."""
    elsewhere = [
        f"{section}.{name}" for section, model in SECTIONS.items() if name in model.model_fields
    ]
    return [*synonyms(f"{section}.{name}"), *synonyms(name), *elsewhere]


@cache
def configuration_fields() -> frozenset[str]:
    """Return the dotted path of every field of a section, the sections and the plugin families."""

    def inside(model: type[BaseModel], above: str) -> Iterator[str]:
        for name, info in model.model_fields.items():
            if name != "options":  # a file writes the options of a dataset beside its name
                yield f"{above}.{name}"
                inner = section_of(info.annotation)
                if inner is not None and inner is not EntryConfig:
                    yield from inside(inner, f"{above}.{name}")

    return frozenset(
        [
            *RunConfig.model_fields,
            *(path for name, model in SECTIONS.items() for path in inside(model, name)),
        ]
    )


def find_field(name: str) -> str | None:
    """Return the path of the field or of the plugin family that a name stands for, or None."""
    return next(
        (wanted for wanted in (name, *_candidates(name)) if wanted in configuration_fields()), None
    )


def suggest_lists(value: Any, field: str) -> str:
    """Return where lists of values belong if a list was given to a field of a configuration, else an empty text."""
    if not isinstance(value, list) or not field:
        return ""
    if any(isinstance(each, dict) for each in value):
        return f"; {hint('layer_types')}"
    tune = f"; to select the best, tune: {{{field}: [...]}}" if field.startswith("train.") else ""
    return f"; to compare values, type design: [{{product: {{{field}: [...]}}}}]{tune}"


def format_validation_error(
    error: ValidationError, model: type[BaseModel], value: Any
) -> tuple[FieldPath, str]:
    """Return the path of the first error inside ``value`` and its message.

    For a union, the message is that of the alternative that matched most of the value,
    and of several, that of a number outside its limits or of a word with a suggestion.
    """

    def rank(detail: ErrorDetails) -> tuple[int, bool]:
        is_misspelt = detail["type"] == "literal_error" and bool(
            _close(detail["input"], detail["ctx"])
        )
        return len(_inside(detail["loc"], value)), detail["type"].startswith(
            ("less", "greater", "missing", "value")
        ) or is_misspelt

    details = error.errors(include_url=False)
    first = _inside(details[0]["loc"], value)
    detail = max(
        (other for other in details if _inside(other["loc"], value)[: len(first)] == first),
        key=rank,
    )
    return _inside(detail["loc"], value), _message(detail, model)


def parse_options(model: type[Model], given: Mapping[str, Any], subject: str) -> Model:
    """Return the options of an entry from JSON values.

    Raises:
        HeadToHeadError: For an unknown option, with the nearest name, or an invalid value.
    """

    def locate(path: FieldPath) -> SourceLocation:
        """Return the option; the message names an unknown one."""
        return SourceLocation(
            Source(subject), path if path and path[0] in model.model_fields else ()
        )

    return checked(model, given, locate)


def _inside(location: Sequence[str | int], value: Any) -> FieldPath:
    """Remove the parts of a pydantic location that name types instead of fields."""
    path: FieldPath = ()
    for part in location:
        try:
            value = value[part]
        except (TypeError, KeyError, IndexError):
            continue
        path = (*path, part)
    return path


def _message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, given, context, location = (
        detail["type"],
        detail["input"],
        detail.get("ctx", {}),
        detail["loc"],
    )
    if kind == "extra_forbidden":
        *above, name = map(str, location)
        if above[:1] == ["design"] and name.partition(".")[0] in RunConfig.model_fields:
            return f"'{name}' is an axis; write product: {{{name}: [...]}}, or one_at_a_time"
        section = next((section for section, other in SECTIONS.items() if other is model), None)
        if model is ExperimentFile:
            if above and name in ExperimentFile.model_fields:
                return (
                    f"unknown field '{name}'; did you mean '{name}' at the top level of the file?"
                )
            section = None if above else "file"
        return f"unknown field '{name}'{suggest_field(name, _fields(model, above), section)}"
    if kind == "missing":
        return f"{'field' if isinstance(location[-1], str) else 'item'} {location[-1]!r} is missing"
    if kind == "value_error":
        return str(context["error"])
    remedy = ""
    if isinstance(given, list):
        section = next(
            (f"{section}.{location[0]}" for section, other in SECTIONS.items() if other is model),
            "",
        )
        remedy = suggest_lists(given, section) if len(location) == 1 else ""
    elif kind == "literal_error":
        remedy = _close(given, context)
    elif given in ("none", "None") and (field := model.model_fields.get(str(location[0]))):
        remedy = "; type null" * (type(None) in get_args(field.annotation))
    elif (
        kind in ("int_type", "float_type")
        and isinstance(given, str)
        and re.fullmatch(r"[\d_.e-]+", given)
    ):
        remedy = f"; type {given.replace('_', '')}"
    if not remedy and kind.endswith(("_type", "too_short")):
        remedy = next(
            (
                f"; for example, {part}: {_EXAMPLES[part]}"
                for part in location[::-1]
                if part in _EXAMPLES
            ),
            "",
        )
    words = re.sub(
        "an object|a valid dictionary( or instance of .*)?",
        "a mapping",
        detail["msg"].partition(", unable")[0],
    )
    words = re.sub("a valid (array|list|tuple)", "a list", words)
    words = re.sub(r"\w+ should have at least (\d+ items?) after.*", r"expected at least \1", words)
    words = re.sub("Input should be (?=greater|less)", "must be ", words).replace(
        "Input should be", "expected"
    )
    return f"{words}, got {shown(given)}{remedy}"


_EXAMPLES: dict[str | int, str] = {
    "baseline": "{positional: sinusoidal}",
    "contrasts": "[{variant: {positional: rotary}, against: {positional: alibi}}]",
    "d_ff": "256, or d_ff: 4x for four times d_model",
    "design": "[{product: {positional: [rotary, alibi]}}]",
    "metrics": "{primary: test/bleu, report: [valid/loss]}",
    "seeds": "6, or seeds: [1, 2, 3]",
    "sizes": "[{model.d_model: 32}, {model.d_model: 64}]",
    "tune": "{train.lr: [1.0e-3, 2.0e-3]}",
}
"""Values of fields, for errors about values of another type."""


def _close(given: Any, context: Mapping[str, Any]) -> str:
    known = [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]
    return suggestion(given, known) if isinstance(given, str) else ""


def _fields(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the field names allowed at ``location``, aliases included."""
    for part in location:
        if part in model.model_fields:
            model = section_of(model.model_fields[str(part)].annotation) or model
    return [info.alias or name for name, info in model.model_fields.items()]


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model class in a field's annotation (also optional or in a list), or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    sections = map(section_of, getattr(annotation, "__args__", ()))
    return next((section for section in sections if section is not None), None)
