"""One-line messages for pydantic's validation errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headtohead.config.source_location import FieldPath, shown, shown_limit
from headtohead.errors import nearest
from headtohead.schema.config_input import SECTIONS

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


_SYNONYMS = {
    "learning_rate": "lr",
    "n_layer": "layers",
    "n_layers": "layers",
    "num_layers": "layers",
    "num_hidden_layers": "layers",
    "n_head": "heads",
    "n_heads": "heads",
    "nhead": "heads",
    "num_heads": "heads",
    "num_attention_heads": "heads",
    "hidden_size": "d_model",
    "n_embd": "d_model",
    "embed_dim": "d_model",
    "intermediate_size": "d_ff",
    "dim_feedforward": "d_ff",
    "ffn_dim": "d_ff",
    "max_grad_norm": "clip_norm",
    "grad_clip": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "max_epochs": "epochs",
    "gradient_accumulation_steps": "num_microbatches",
    "accumulate_grad_batches": "num_microbatches",
    "eval_steps": "evaluate_every",
    "num_beams": "beam",
    "beam_size": "beam",
}
"""Fields of other tools and their names here."""


def suggest_field(name: str, known: Iterable[str], section: str | None = None) -> str:
    """Return ``"; did you mean 'lr'?"`` for an unknown field, from names of other tools and sections too.

    Args:
        name: The unknown field.
        known: Fields that are allowed instead.
        section: Section of a configuration in which the field was given.
    """
    fields = [field for field in known if (section, field) != ("data", "options")]
    wanted = _SYNONYMS.get(name.lower(), name)
    if wanted in fields:
        return f"; did you mean '{wanted}'?"
    for other, model in SECTIONS.items() if section is not None else ():
        if wanted in model.model_fields:
            return f"; did you mean '{other}.{wanted}'?"
    return nearest(name, fields)


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
    if kind == "extra_forbidden":
        name = str(detail["loc"][-1])
        return f"unknown field '{name}'{suggest_field(name, _fields(model, detail['loc'][:-1]))}"
    if kind == "missing" and isinstance(detail["loc"][-1], int):
        return f"expected {detail['loc'][-1] + 1} values, got {got}"
    if kind == "missing":
        return f"field '{detail['loc'][-1]}' is missing"
    if kind == "literal_error":
        return f"expected {context['expected']}, got {got}{_close(detail['input'], context)}"
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return f"must be {words} {shown_limit(context[key])}, got {got}"
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
