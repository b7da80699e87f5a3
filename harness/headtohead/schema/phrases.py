"""Phrases: what people call the value of a field, an entry or an option.

A phrase is a noun phrase, such as ``rotary``, or starts with ``with`` or ``without``, such as ``without positions``.
A template is a phrase with slots for values, in the notation of `str.format`. Two formats are added:
``{bias:with|without}`` is the first word for true and the second for false, ``{fraction:%}`` a fraction in percent.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPTIONAL_PART = re.compile(r"\[([^\[\]]*)\]")
"""A part of an entry's template, which the phrase has if an option in it differs from its default."""


@dataclass(frozen=True)
class Phrase:
    """Marks a field of a configuration with the template of its values.

    Attributes:
        template: The template, in which ``value`` is the value.
        named: Phrases of single values, by the value as YAML has it, such as ``null`` or ``pre``.
    """

    template: str = "{value}"
    named: Mapping[str, str] = field(default_factory=dict)


class _PhraseFormatter(string.Formatter):
    """Fills the slots of a template."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value as text in the format of its slot."""
        if "|" in format_spec:
            if_true, if_false = format_spec.split("|")
            return if_true if value else if_false
        if format_spec == "%":
            return f"{100 * value:g} %"
        return spoken(value)


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with its slots filled.

    Raises:
        KeyError: If a slot has no value.
        ValueError: If the template is invalid.
    """
    return _PhraseFormatter().vformat(template, (), values)


def slots(template: str) -> list[str]:
    """Return the names of the slots of a template, in order.

    Raises:
        ValueError: If the template is invalid.
    """
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


def without_slots(template: str) -> str:
    """Return the words of a template, such as ``learning rate`` of ``learning rate {value}``."""
    words = "".join(literal for literal, *_ in string.Formatter().parse(template))
    return " ".join(words.split())


def spoken(value: Any) -> str:
    """Return a value as in a sentence: ``on`` or ``off``, ``none``, a number, or words without underscores.

    >>> spoken(0.25), spoken(2.0), spoken(None), spoken("sqrt-d_model"), spoken([1, 2])
    ('0.25', '2', 'none', 'sqrt-d model', '1, 2')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    if isinstance(value, int | float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{spoken(name)} {spoken(item)}" for name, item in value.items())
    if isinstance(value, str):
        return value.replace("_", " ")
    return ", ".join(spoken(item) for item in value)
