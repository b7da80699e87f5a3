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
    if section is None:
        return nearest(name, fields)
    for wanted in [name, *_candidates(name, section)]:
        head, _, last = wanted.rpartition(".")
        if last in fields and head.partition(".")[0] in ("", section):
            return f"; did you mean '{last}'?"
        if wanted in configuration_fields():
            if section == "file":
                return f"; did you mean 'base.{wanted}'?"
            return (
                f"; did you mean '{wanted}'?"
                if head
                else f"; did you mean '{wanted}', a field of base?"
            )
        if wanted == "base":
            return "; leave it out: the fields here are those of base"
        if wanted in ExperimentFile.model_fields:
            return f"; write '{wanted}' at the top level of the experiment file, outside base"
    return nearest(name, fields)


def _candidates(name: str, section: str | None = None) -> list[str]:
    """Return the synonyms of a field, those of its section first, and the fields of this name in sections."""
    elsewhere = []
    for other, model in SECTIONS.items():
        if name in model.model_fields:
            elsewhere.append(f"{other}.{name}")
    return [*synonyms(f"{section}.{name}"), *synonyms(name), *elsewhere]


@cache
def configuration_fields() -> frozenset[str]:
    """Return the dotted path of every field of a section, the sections and the plugin families."""

    fields = list(RunConfig.model_fields)
    for name, model in SECTIONS.items():
        fields += _fields_inside(model, name)
    return frozenset(fields)


def _fields_inside(model: type[BaseModel], above: str) -> Iterator[str]:
    """Yield the dotted paths of the fields of a section; options are those of an entry, not of the section."""
    for name, info in model.model_fields.items():
        if name == "options":
            continue
        yield f"{above}.{name}"
        inner = section_of(info.annotation)
        if inner is not None and inner is not EntryConfig:
            yield from _fields_inside(inner, f"{above}.{name}")


def find_field(name: str) -> str | None:
    """Return the path of the field or of the plugin family that a name stands for, or None."""
    for wanted in (name, *_candidates(name)):
        if wanted in configuration_fields():
            return wanted
    return None


def suggest_lists(value: Any, field: str) -> str:
    """Return where lists of values belong if a list was given to a field of a configuration, else an empty text."""
    if not isinstance(value, list) or not field:
        return ""
    if any(isinstance(each, dict) for each in value):
        return f"; {hint('layer_types')}"
    hints = f"; to compare values, type design: [{{product: {{{field}: [...]}}}}]"
    if field.startswith("train."):
        hints += f"; to select the best, tune: {{{field}: [...]}}"
    return hints


def format_validation_error(
    error: ValidationError, model: type[BaseModel], value: Any
) -> tuple[FieldPath, str]:
    """Return the path of the first error inside ``value`` and its message.

    For a union, the message is that of the alternative that matched most of the value,
    and of several, that of a number outside its limits or of a word with a suggestion.
    """

    details = error.errors(include_url=False)
    first = _inside(details[0]["loc"], value)
    alternatives = []
    for detail in details:
        path = _inside(detail["loc"], value)
        if path[: len(first)] == first:
            alternatives.append((len(path), _is_specific(detail), detail, path))
    _, _, detail, path = max(alternatives, key=lambda alternative: alternative[:2])
    return path, _message(detail, model)


def _is_specific(detail: ErrorDetails) -> bool:
    """Return whether an error is more than a wrong type: a number outside its limits, or a misspelt word."""
    if detail["type"] == "literal_error":
        return bool(_close(detail["input"], detail["ctx"]))
    return detail["type"].startswith(("less", "greater", "missing", "value"))


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
    """Return the message for the value of a field, with what to do where this is known."""
    kind, location = detail["type"], detail["loc"]
    if kind == "extra_forbidden":
        *above, name = (str(part) for part in location)
        return _unknown_field(name, above, model)
    if kind == "missing":
        part = "field" if isinstance(location[-1], str) else "item"
        return f"{part} {location[-1]!r} is missing"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    remedy = _remedy(detail, model)
    if not remedy and kind.endswith(("_type", "too_short")):
        remedy = _example(location)
    return f"{_expected(detail)}, got {shown(detail['input'])}{remedy}"


def _unknown_field(name: str, above: Sequence[str], model: type[BaseModel]) -> str:
    """Return the message for a field that its mapping does not have."""
    if above[:1] == ["design"] and name.partition(".")[0] in RunConfig.model_fields:
        return f"'{name}' is an axis; write product: {{{name}: [...]}}, or one_at_a_time"
    section = _section_name(model)
    if model is ExperimentFile:
        if above and name in ExperimentFile.model_fields:
            return f"unknown field '{name}'; did you mean '{name}' at the top level of the file?"
        section = None if above else "file"
    return f"unknown field '{name}'{suggest_field(name, _fields(model, above), section)}"


def _remedy(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """Return what to type instead of a value of a wrong type, as a suffix of its message."""
    value, location = detail["input"], detail["loc"]
    if isinstance(value, list):
        section = _section_name(model)
        if len(location) == 1 and section is not None:
            return suggest_lists(value, f"{section}.{location[0]}")
        return ""
    if detail["type"] == "literal_error":
        return _close(value, detail["ctx"])
    if value in ("none", "None"):
        field = model.model_fields.get(str(location[0]))
        accepts_null = field is not None and type(None) in get_args(field.annotation)
        return "; type null" if accepts_null else ""
    is_number = detail["type"] in ("int_type", "float_type") and isinstance(value, str)
    if is_number and re.fullmatch(r"[\d_.e-]+", value):
        return f"; type {value.replace('_', '')}"
    return ""


def _example(location: Sequence[str | int]) -> str:
    """Return a valid value of the innermost field for which one is known, as a suffix of a message."""
    for part in reversed(location):
        if part in _EXAMPLES:
            return f"; for example, {part}: {_EXAMPLES[part]}"
    return ""


def _expected(detail: ErrorDetails) -> str:
    """Return pydantic's message in the words of YAML: a mapping, a list."""
    text, _, _ = detail["msg"].partition(", unable")
    text = re.sub("an object|a valid dictionary( or instance of .*)?", "a mapping", text)
    text = re.sub("a valid (array|list|tuple)", "a list", text)
    text = re.sub(r"\w+ should have at least (\d+ items?) after.*", r"expected at least \1", text)
    text = re.sub("Input should be (?=greater|less)", "must be ", text)
    return text.replace("Input should be", "expected")


def _section_name(model: type[BaseModel]) -> str | None:
    """Return the name of the section that a model describes, or None."""
    for name, section in SECTIONS.items():
        if section is model:
            return name
    return None


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


def _close(value: Any, context: Mapping[str, Any]) -> str:
    """Return the suggestion of a similar word of a choice, or an empty text."""
    if not isinstance(value, str):
        return ""
    words = str(context["expected"]).replace(" or ", ", ").split(", ")
    return suggestion(value, [word.strip("'") for word in words])


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
    for argument in getattr(annotation, "__args__", ()):
        section = section_of(argument)
        if section is not None:
            return section
    return None
