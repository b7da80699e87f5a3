"""Numbers inside sentences: the text's names in braces, filled with what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from string import Formatter
from typing import Any

from headtohead.tools.pitfalls.fact import counted, percent


def fill(sentence: str, numbers: Mapping[str, float]) -> str:
    """Return the sentence with its numbers.

    A name alone is shown with two digits; ``count`` and ``percent`` behind a colon make it a whole
    number or a percentage, ``counted|word`` gives it its noun, and ``is|are`` stands for one of
    both words by whether the number is 1.

    Raises:
        KeyError: If a number was not measured.
    """
    return " ".join(_Filler().vformat(sentence, (), numbers).split())


def plain(value: float) -> str:
    """Return a number with two digits: ``0``, ``0.81``, ``4e-9``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    if 0.001 <= abs(value) < 1000:
        return f"{value:.2g}"
    return power(value)


def power(value: float) -> str:
    """Return a number as a digit and a power of ten: ``1e-4``."""
    digits, exponent = f"{value:.0e}".split("e")
    return f"{digits}e{int(exponent)}"


class _Filler(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if not spec:
            return plain(value)
        if spec == "count":
            return f"{value:,.0f}"
        if spec == "percent":
            return percent(value)
        if spec.startswith("counted|"):
            return counted(int(value), spec.partition("|")[2])
        one, _, more = spec.partition("|")
        return one if value == 1 else more
