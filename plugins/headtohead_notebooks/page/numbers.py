"""Numbers in sentences: names in braces are replaced by measured numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Formatter
from typing import Any

from headtohead.storage.metrics import counted


def fill(sentence: str, numbers: Mapping[str, float]) -> str:
    """Return a sentence with its numbers.

    ``{name}`` is replaced by the number with two digits, ``{name:count}`` by a whole number,
    ``{name:percent}`` by a percentage, ``{name:counted|word}`` by the number with its noun, and
    ``{name:is|are}`` by the first word if the number is 1, else by the second.

    Raises:
        KeyError: If a number was not measured.
    """
    filled = _NumberFormatter().vformat(sentence, (), numbers)
    words = filled.split()
    return " ".join(words)


def plain(value: float) -> str:
    """Return a number with at most two digits: ``0``, ``0.81``, ``4e-9``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    if 0.001 <= abs(value) < 1000:
        return f"{value:.2g}"
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}"


def percent(share: float) -> str:
    """Return a proportion as a percentage, with enough digits to differ from 0 % and 100 %."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    if 0.001 <= share <= 0.999:
        return f"{100 * share:.1f} %"
    return f"{100 * share:.3g} %"


class _NumberFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        kind, _, argument = format_spec.partition("|")
        if kind == "counted":
            return counted(int(value), argument)
        if argument and value == 1:
            return kind
        if argument:
            return argument
        if kind == "count":
            return f"{value:,.0f}"
        if kind == "percent":
            return percent(value)
        if kind == "":
            return plain(value)
        raise KeyError(kind)
