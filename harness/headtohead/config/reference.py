"""Types, defaults and meanings of fields in words, for pages and for ``h2h plugins``."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def type_words(info: FieldInfo) -> str:
    """Return the type and limits of a field: ``whole number ≥ 1, or nothing``."""
    return _limited(_words(info.annotation), info.metadata)


def _limited(words: str, metadata: Sequence[Any]) -> str:
    """Insert limits after the word number."""
    limits = []
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        for limit in metadata:
            bound = getattr(limit, name, None)
            if bound is not None:
                limits.append(f"{sign} {_number(bound)}")
    if not limits:
        return words
    return words.replace("number", f"number {' and '.join(limits)}", 1)


def _number(value: float) -> str:
    """Format a limit: whole numbers in full, with commas."""
    if value == int(value) and value < 1e15:
        return f"{int(value):,}"
    return f"{value:g}"


def _words(annotation: Any) -> str:
    """Return a type in words; the words of a union are joined with "or"."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        info = FieldInfo.from_annotation(annotation)
        return _limited(_words(info.annotation), info.metadata)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [_words(kind) for kind in arguments if kind is not type(None)]
        if type(None) in arguments:
            kinds.append("nothing")
        return ", or ".join(kinds)
    if origin in (list, tuple):
        inner = " or ".join(_words(arguments[0]).split(", or "))
        return f"list ({inner})"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return plain.get(annotation, "anything")


def option_rows(options: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default as JSON, and meaning of the options of a plugin entry."""
    for name, info in options.model_fields.items():
        default = "required"
        if not info.is_required():
            value = info.get_default(call_default_factory=True)
            default = json.dumps(value, default=str)
        yield name, type_words(info), default, meaning(info)


def meaning(info: FieldInfo) -> str:
    """Return the description of a field on one line, or an empty text."""
    return " ".join((info.description or "").split())
