"""The calculation of the first cell of the last row of a matrix, with numbers rounded for display.

Each function returns an empty text if its formula does not give the value of the cell, as for a variant that computes
it differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headtohead_notebooks.trace.steps import Array

MAX_TERMS = 3
"""Terms of a sum that are shown before the last one."""

TOLERANCE = 1e-3

LARGE = 1e6
"""Absolute values from which a number is a masked score."""


def number(value: float) -> str:
    """Return a number as text, with a true minus sign.

    >>> number(-0.12345), number(-1e9), number(float("-inf")), number(2.0)
    ('−0.123', '−1.0e9', '−∞', '2.000')
    """
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    if math.isnan(value):
        return "NaN"
    if abs(value) >= LARGE:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    digits = 3 if abs(value) < 100 else 1
    shown = f"{value:.{digits}f}"
    return shown.replace("-", "−") if float(shown) else shown.lstrip("-")


def product(queries: Array, keys: Array, scale: float, scores: Array) -> str:
    """Return the scaled dot product of the last query and the first key."""
    terms = [f"{_bracket(q)}·{_bracket(k)}" for q, k in zip(queries[-1], keys[0], strict=True)]
    return _equation(
        f"({_sum(terms)}) · {number(scale)}", float(queries[-1] @ keys[0]) * scale, scores
    )


def softmax_weight(scores: Array, weights: Array) -> str:
    """Return the softmax for the first weight of the last row."""
    unmasked = [float(value) for value in scores[-1] if _is_unmasked(value)]
    if not unmasked or not _is_unmasked(scores[-1, 0]):
        return ""
    powers = [f"e^{{{number(value)}}}" for value in unmasked]
    value = math.exp(unmasked[0] - float(np.logaddexp.reduce(unmasked)))
    return _equation(f"{powers[0]} / ({_sum(powers)})", value, weights)


def weighted_sum(weights: Array, values: Array, out: Array) -> str:
    """Return the weighted sum for the first coordinate of the last row."""
    terms = [
        f"{number(weight)}·{_bracket(value)}"
        for weight, value in zip(weights[-1], values[:, 0], strict=True)
    ]
    return _equation(_sum(terms), float(weights[-1] @ values[:, 0]), out)


def _equation(text: str, value: float, matrix: Array) -> str:
    cell = float(matrix[-1, 0])
    agree = math.isclose(value, cell, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return f"{text} = {number(cell)}" if agree else ""


def _is_unmasked(score: float) -> bool:
    """Return whether the key of a score is not masked."""
    return bool(np.isfinite(score)) and score > -LARGE


def _sum(terms: Sequence[str]) -> str:
    """Join terms with plus signs; the middle of many terms is omitted."""
    if len(terms) > MAX_TERMS + 1:
        terms = [*terms[:MAX_TERMS], "…", terms[-1]]
    return " + ".join(terms)


def _bracket(value: float) -> str:
    shown = number(float(value))
    return f"({shown})" if shown.startswith("−") else shown
