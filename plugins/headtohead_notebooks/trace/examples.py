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
    if float(shown) == 0:
        return shown.lstrip("-")
    return shown.replace("-", "−")


def product(queries: Array, keys: Array, scale: float, scores: Array) -> str:
    """Return the scaled dot product of the last query and the first key."""
    query = queries[-1]
    key = keys[0]
    terms = []
    for query_value, key_value in zip(query, key, strict=True):
        terms.append(f"{_bracket(query_value)}·{_bracket(key_value)}")
    calculation = f"({_sum(terms)}) · {number(scale)}"
    value = float(query @ key) * scale
    return _equation(calculation, value, scores)


def softmax_weight(scores: Array, weights: Array) -> str:
    """Return the softmax for the first weight of the last row."""
    unmasked = [float(value) for value in scores[-1] if _is_unmasked(value)]
    if not unmasked or not _is_unmasked(scores[-1, 0]):
        return ""
    powers = [f"e^{{{number(value)}}}" for value in unmasked]
    log_total = float(np.logaddexp.reduce(unmasked))
    value = math.exp(unmasked[0] - log_total)
    return _equation(f"{powers[0]} / ({_sum(powers)})", value, weights)


def weighted_sum(weights: Array, values: Array, out: Array) -> str:
    """Return the weighted sum for the first coordinate of the last row."""
    last_weights = weights[-1]
    first_column = values[:, 0]
    terms = []
    for weight, value in zip(last_weights, first_column, strict=True):
        terms.append(f"{number(weight)}·{_bracket(value)}")
    total = float(last_weights @ first_column)
    return _equation(_sum(terms), total, out)


def _equation(calculation: str, value: float, matrix: Array) -> str:
    """Return a calculation with its result; an empty text if the matrix has another value."""
    cell = float(matrix[-1, 0])
    if not math.isclose(value, cell, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return ""
    return f"{calculation} = {number(cell)}"


def _is_unmasked(score: float) -> bool:
    """Return whether the key of a score is not masked."""
    return bool(np.isfinite(score)) and score > -LARGE


def _sum(terms: Sequence[str]) -> str:
    """Join terms with plus signs; the middle of many terms is omitted."""
    if len(terms) > MAX_TERMS + 1:
        terms = [*terms[:MAX_TERMS], "…", terms[-1]]
    return " + ".join(terms)


def _bracket(value: float) -> str:
    """Return a number as text, in parentheses if it is negative."""
    shown = number(float(value))
    if shown.startswith("−"):
        return f"({shown})"
    return shown
