"""A validation error of pydantic, as the one line that the user reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headtohead.config.source_location import FieldPath, shown
from headtohead.errors import nearest

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


def problem(error: ValidationError, model: type[BaseModel], value: Any) -> tuple[FieldPath, str]:
    """Return where the first problem is, inside ``value``, and what it is.

    Of the alternatives of a union, the one that got furthest into the value speaks.
    """
    details = error.errors(include_url=False)
    first = _inside(details[0]["loc"], value)
    same = [one for one in details if _inside(one["loc"], value)[: len(first)] == first]
    detail = max(same, key=lambda one: len(_inside(one["loc"], value)))
    return _inside(detail["loc"], value), _message(detail, model, value)


def _inside(location: Sequence[str | int], value: Any) -> FieldPath:
    """Drop the parts of a pydantic location that name types, not fields."""
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
    if kind == "extra_forbidden":
        name = str(detail["loc"][-1])
        return f"unknown field '{name}'{nearest(name, _fields(model, detail['loc'][:-1]))}"
    if kind == "missing" and isinstance(detail["loc"][-1], int):
        return f"expected {detail['loc'][-1] + 1} values, got {got}"
    if kind == "missing":
        return f"field '{detail['loc'][-1]}' is missing"
    if kind == "literal_error":
        return f"expected {context['expected']}, got {got}{_close(detail['input'], context)}"
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {context[key]:g}, got {got}"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "too_long"):
        wanted = context.get("min_length") or context.get("max_length")
        return f"expected {wanted} values, got {got}"
    expected = _EXPECTED.get(kind.split("_")[0])
    return f"expected {expected}, got {got}" if expected else f"{detail['msg'].lower()}, got {got}"


def _close(given: Any, context: Mapping[str, Any]) -> str:
    known = [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]
    hint = nearest(given, known) if isinstance(given, str) else ""
    return hint if hint.startswith("; did you mean") else ""


def _fields(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Names that are allowed at ``location``, aliases included."""
    for part in location:
        if part in model.model_fields:
            model = section_of(model.model_fields[str(part)].annotation) or model
    return [info.alias or name for name, info in model.model_fields.items()]


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, alone, optional or in a list; None if it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = section_of(argument)
        if found is not None:
            return found
    return None
