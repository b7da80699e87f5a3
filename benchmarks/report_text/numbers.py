"""Printed numbers: how they are found, and whether they are the expected ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

NUMBER = re.compile(r"([+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)( [kMGT]\b)?")
N = r"([+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
"""A number in the pattern of a sentence."""

SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

METRICS = {
    "BLEU": "test/bleu",
    "chrF": "test/chrf",
    "exact match": "test/exact_match",
    "test loss": "test/loss",
    "loss": "test/loss",
    "test token accuracy": "test/token_accuracy",
    "token accuracy": "test/token_accuracy",
    "bits per byte": "test/bits_per_byte",
    "validation loss": "valid/loss",
    "validation token accuracy": "valid/token_accuracy",
}
"""Column of ``results.csv`` by readable name."""

SPANS = {"exact_match": (0, 1), "token_accuracy": (0, 1), "bleu": (0, 100), "chrf": (0, 100)}
"""Smallest and largest value of a metric; of all others, 0 and infinity."""

Expected = list[float]


def value_of(number: str) -> float:
    """Return the value of a printed number."""
    return float(number.replace(",", "").replace("−", "-"))


def agrees(number: str, expected: float, scale: float = 1.0) -> bool:
    """Return whether a printed number is the expected one, rounded to its digits.

    >>> agrees("0.016", 0.0158), agrees("−0.42", -0.4249), agrees("51.6", 51648, 1000), agrees("0.013", 0.0158)
    (True, True, True, False)
    """
    mantissa, _, exponent = number.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(value_of(number) * scale - expected) <= 0.5 * unit * scale * (1 + 1e-6) + 1e-12


def interval(values: Sequence[float], metric: str = "", level: float = 0.95) -> Expected:
    """Return mean and ends of the t-interval, clipped to the span of the metric."""
    numbers = np.array(values, dtype=float)
    if len(numbers) < 2:
        return [float(numbers.mean())]
    half = (
        stats.t.ppf((1 + level) / 2, len(numbers) - 1)
        * numbers.std(ddof=1)
        / math.sqrt(len(numbers))
    )
    low, high = (
        SPANS.get(metric.rpartition("/")[2], (0, math.inf)) if metric else (-math.inf, math.inf)
    )
    ends = np.clip([numbers.mean() - half, numbers.mean() + half], low, high)
    return [float(numbers.mean()), *map(float, ends)]


def hedges(values: np.ndarray) -> float:
    """Return the mean divided by the standard deviation, with Hedges' correction."""
    degrees = len(values) - 1
    logs = special.gammaln([degrees / 2, (degrees - 1) / 2])
    return float(
        math.exp(logs[0] - logs[1]) / math.sqrt(degrees / 2) * values.mean() / values.std(ddof=1)
    )


def fits(cell: str, expected: Sequence[float | None]) -> bool:
    """Return whether a cell has these numbers in this order; None is any number."""
    found = NUMBER.findall(cell)
    if len(found) != len(expected):
        return False
    return all(
        value is None or agrees(number, value, SCALES[unit.strip()])
        for (number, unit), value in zip(found, expected, strict=True)
    )


def shown(expected: Sequence[float | None]) -> str:
    return (
        ", ".join("any" if value is None else f"{value:.6g}" for value in expected) or "no number"
    )
