"""Numbers and the precision that they have, and numbers as text: counts, decimals and p-values."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

SINGLE_DIGITS = 6
"""Digits after the first one of numbers that were computed in single precision."""


def are_single(values: NDArray[np.float64]) -> bool:
    """Return whether all numbers are numbers of single precision (float32), as of scores that were computed in it.

    Whole numbers alone are counts, which are exact.
    """
    if bool((values == np.rint(values)).all()):
        return False
    with np.errstate(over="ignore"):
        return bool((values == values.astype(np.float32)).all())


def decimals_of_single(values: NDArray[np.float64]) -> float:
    """Return how many decimals numbers have if all were computed in single precision; infinite for others.

    >>> decimals_of_single(np.array([78.69999694824219, 79.0])), decimals_of_single(np.array([78.7]))
    (5, inf)
    """
    largest = np.abs(values).max(initial=0.0)
    if not largest or not are_single(values):
        return math.inf
    return max(0, SINGLE_DIGITS - math.floor(math.log10(largest)))


def decimals_of(value: float) -> int:
    """Return the number of decimals in the shortest notation of a number.

    >>> decimals_of(0.0125), decimals_of(2.0)
    (4, 0)
    """
    shortest = Decimal(repr(float(value))).normalize()
    return max(0, -int(shortest.as_tuple().exponent))


def decimals_written(text: str) -> int:
    """Return the number of decimals of a number as it is written.

    >>> decimals_written("0.8000"), decimals_written("12"), decimals_written("1e-3")
    (4, 0, 3)
    """
    return max(0, -int(Decimal(text.strip()).as_tuple().exponent))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, with a plural s unless the number is 1."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"


SMALLEST_SHOWN_P = 0.001
"""Smaller p-values are printed as smaller than this."""


def show_p(p: float | None) -> str:
    """Format a p-value with three decimals; every p-value below 0.001 is ``< 0.001``."""
    if p is None or math.isnan(p):
        return "–"
    if p < SMALLEST_SHOWN_P:
        return "< 0.001"
    return f"{p:.3f}"
