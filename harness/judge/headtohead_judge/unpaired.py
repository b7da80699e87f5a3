"""Differences of two sides with separate seeds: Welch's t-test and a permutation test."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.paired_tests import (
    DRAWS,
    MAX_SIGNS,
    SEEDS,
    Difference,
    Kind,
    Source,
    rounding_error,
)

MAX_ENUMERATED_PERMUTATIONS = 200_000
"""Largest number of permutations that are all counted."""


def unpaired(values: ArrayLike, against: ArrayLike) -> Difference:
    """Compare two sides with separate seeds, ``values`` minus ``against``, by Welch's t-test (1947)."""
    left = np.asarray(values, dtype=np.float64)
    right = np.asarray(against, dtype=np.float64)
    n = min(len(left), len(right))
    if n == 0:
        return _untested("none", 0, math.nan)
    rounding = rounding_error(np.concatenate([left, right]))
    mean = float(left.mean() - right.mean())
    if abs(mean) <= rounding:
        mean = 0.0
    if n == 1:
        return _untested("single", 1, mean)
    left_variance = _variance(left, rounding)
    right_variance = _variance(right, rounding)
    left_part = left_variance / len(left)
    right_part = right_variance / len(right)
    p = permutation_p(left, right)
    if left_part == right_part == 0:
        kind: Kind = "constant" if mean else "identical"
        degrees = len(left) + len(right) - 2
        return Difference(kind, n, mean, (Source(SEEDS, 0.0, degrees),), math.nan, p)
    variance = left_part + right_part
    squares = left_part**2 / (len(left) - 1) + right_part**2 / (len(right) - 1)
    degrees_of_welch = variance**2 / squares
    return Difference(
        kind="varied",
        n=n,
        mean=mean,
        sources=(Source(SEEDS, variance, degrees_of_welch),),
        effect=mean / math.sqrt((left_variance + right_variance) / 2),
        sign_flip_p=p,
    )


def _untested(kind: Kind, n: int, mean: float) -> Difference:
    """Return a difference without any test."""
    return Difference(kind, n, mean, (), math.nan, math.nan)


def _variance(scores: NDArray[np.float64], rounding: float) -> float:
    """Return the sample variance; 0 if the scores differ by rounding errors only."""
    if np.ptp(scores) <= rounding:
        return 0.0
    return float(scores.var(ddof=1))


def permutation_p(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return the two-sided p of the difference of means under permutations of the sides.

    Exact up to ``MAX_ENUMERATED_PERMUTATIONS`` permutations. Otherwise random permutations from a fixed seed and the
    observed order are counted.
    """
    scores = np.concatenate([left, right])
    size = len(left)
    expected = float(scores.sum()) * size / len(scores)
    observed = abs(float(left.sum()) - expected) - rounding_error(scores) * len(scores)
    if math.comb(len(scores), size) <= MAX_ENUMERATED_PERMUTATIONS:
        sums = np.array([sum(chosen) for chosen in combinations(scores.tolist(), size)])
        return float((np.abs(sums - expected) >= observed).mean())
    draws = min(DRAWS, MAX_SIGNS // len(scores))
    rows = np.broadcast_to(scores, (draws, len(scores)))
    permuted = np.random.default_rng(20_17).permuted(rows, axis=1)
    sums = permuted[:, :size].sum(axis=1)
    hits = int((np.abs(sums - expected) >= observed).sum())
    return (hits + 1) / (draws + 1)
