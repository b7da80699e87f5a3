"""One-line messages for pydantic's validation errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headtohead.config.source_location import FieldPath, shown, shown_limit
from headtohead.errors import nearest, suggestion
from headtohead.schema.config_input import SECTIONS
from headtohead.schema.experiment_file import ExperimentFile
from headtohead.schema.run_config import RunConfig
from headtohead.synonyms import synonyms

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}

_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("greater than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def suggest_field(name: str, known: Iterable[str], section: str | None = None) -> str:
    """Return ``"; did you mean 'lr'?"`` for an unknown field, from names of other tools and sections too.

    Args:
        name: The unknown field.
        known: Fields that are allowed instead.
        section: Section of a configuration in which the field was given; ``base`` for a field beside the sections,
            and None for the options of an entry and for fields that are not part of a configuration.
    """
    fields = [field for field in known if (section, field) != ("data", "options")]
    if section is None:
        return nearest(name, fields)
    if section in SECTIONS and name in RunConfig.model_fields:
        return f"; '{name}' is a field of base, outside '{section}'"
    if section == "base" and name in ExperimentFile.model_fields:
        return f"; '{name}' is a field of the experiment file, outside base"
    for wanted in _candidates(name, section):
        head, _, last = wanted.rpartition(".")
        if last in fields and head.partition(".")[0] in ("", section):
            return f"; did you mean '{last}'?"
        if has_field(wanted):
            return f"; did you mean '{wanted}'?"
        if wanted in RunConfig.model_fields:
            return f"; did you mean '{wanted}', a field of base?"
        if wanted in ExperimentFile.model_fields:
            return f"; did you mean '{wanted}', a field of the experiment file outside base?"
    return nearest(name, fields)


def _candidates(name: str, section: str | None = None) -> list[str]:
    """Return the synonyms of a field, those of its section first, and the fields of this name in sections."""
    elsewhere = [f"{section}.{name}" for section, model in SECTIONS.items() if name in model.model_fields]
    return [*synonyms(f"{section}.{name}"), *synonyms(name), *elsewhere]


def has_field(path: str) -> bool:
    """Return whether a path such as ``data.vocabulary.max_size`` is a field of a section."""
    section, *names = path.split(".")
    model = SECTIONS.get(section)
    for name in names:
        if model is None or name not in model.model_fields:
            return False
        model = section_of(model.model_fields[name].annotation)
    return section in SECTIONS and bool(names)


def find_field(name: str) -> str | None:
    """Return the path of the field or of the plugin family that a name stands for, or None."""
    known = (wanted for wanted in (name, *_candidates(name)) if has_field(wanted) or wanted in RunConfig.model_fields)
    return next(known, None)


def _suggest_file_field(name: str) -> str:
    """Return what an unknown field of an experiment file may stand for."""
    if name.partition(".")[0] in (*RunConfig.model_fields, "recipe"):
        return f"; '{name}' is a field of base"
    for wanted in _candidates(name):
        if wanted in ExperimentFile.model_fields:
            return f"; did you mean '{wanted}'?"
        if has_field(wanted) or wanted in RunConfig.model_fields:
            return f"; did you mean 'base.{wanted}'?"
    return nearest(name, ExperimentFile.model_fields)


def suggest_lists(value: Any, field: str) -> str:
    """Return where lists of values belong if a list was given to a field of a configuration, else an empty text."""
    if not isinstance(value, list) or not field:
        return ""
    tune = f"; to select the best, tune: {{{field}: [...]}}" if field.startswith("train.") else ""
    return f"; to compare values, type design: [{{product: {{{field}: [...]}}}}]{tune}"


def format_validation_error(error: ValidationError, model: type[BaseModel], value: Any) -> tuple[FieldPath, str]:
    """Return the path of the first error inside ``value`` and its message.

    For a union, the message is that of the alternative that matched most of the value,
    and of several, that of a number outside its limits or of a word with a suggestion.
    """
    details = error.errors(include_url=False)
    first = _inside(details[0]["loc"], value)
    same = [detail for detail in details if _inside(detail["loc"], value)[: len(first)] == first]
    detail = max(same, key=lambda detail: (len(_inside(detail["loc"], value)), _is_specific(detail)))
    return _inside(detail["loc"], value), _message(detail, model, value)


def _is_specific(detail: ErrorDetails) -> bool:
    """Return whether an error is a number outside its limits, or a misspelt word."""
    is_word = detail["type"] == "literal_error"
    return detail["type"] in _LIMITS or (is_word and bool(_close(detail["input"], detail["ctx"])))


def _inside(location: Sequence[str | int], value: Any) -> FieldPath:
    """Remove the parts of a pydantic location that name types instead of fields."""
    path: FieldPath = ()
    for part in location:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(part, int):
            if part >= len(value):
                continue
            value = value[part]
        else:
            continue
        path = (*path, part)
    return path


def _message(detail: ErrorDetails, model: type[BaseModel], value: Any) -> str:
    kind, got, context = detail["type"], shown(detail["input"]), detail.get("ctx", {})
    remedy = suggest_lists(detail["input"], _field_of(model, detail["loc"]))
    if kind == "extra_forbidden":
        name, above = str(detail["loc"][-1]), detail["loc"][:-1]
        if model is ExperimentFile and not above:
            return f"unknown field '{name}'{_suggest_file_field(name)}"
        if model is ExperimentFile and above[0] == "design" and name.partition(".")[0] in RunConfig.model_fields:
            return f"'{name}' is an axis; write product: {{{name}: [...]}}, or one_at_a_time"
        return f"unknown field '{name}'{suggest_field(name, _fields(model, above))}"
    if kind == "missing" and isinstance(detail["loc"][-1], int):
        return f"expected {detail['loc'][-1] + 1} values, got {got}"
    if kind == "missing":
        return f"field '{detail['loc'][-1]}' is missing"
    if kind == "literal_error":
        return f"expected {context['expected']}, got {got}{_close(detail['input'], context)}{remedy}"
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {shown_limit(context[key])}, got {got}"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "too_long"):
        wanted = context.get("min_length") or context.get("max_length")
        return f"expected {wanted} values, got {got}"
    expected = _EXPECTED.get(kind.split("_")[0])
    if kind == "model_type":
        expected = f"a mapping of {', '.join(_fields(model, detail['loc']))}"
    if kind in ("list_type", "tuple_type") and isinstance(detail["input"], dict) and len(detail["loc"]) == 1:
        remedy = "; begin each item with a hyphen"
    if got in ("'none'", "'None'") and _is_optional(model, detail["loc"]):
        remedy = "; type null"
    return f"expected {expected}, got {got}{remedy}" if expected else f"{detail['msg'].lower()}, got {got}"


def _is_optional(model: type[BaseModel], location: Sequence[str | int]) -> bool:
    """Return whether a field of a section may be null."""
    field = model.model_fields.get(str(location[0]))
    return field is not None and type(None) in getattr(field.annotation, "__args__", ())


def _field_of(model: type[BaseModel], location: Sequence[str | int]) -> str:
    """Return the path of a field such as ``train.lr``, or an empty text outside the sections of a configuration."""
    section = next((name for name, other in SECTIONS.items() if other is model), None)
    return f"{section}.{location[0]}" if section and len(location) == 1 else ""


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
    for argument in getattr(annotation, "__args__", ()):
        section = section_of(argument)
        if section is not None:
            return section
    return None
