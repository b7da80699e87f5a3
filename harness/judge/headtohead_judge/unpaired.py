"""Differences of two sides with separate seeds: Welch's t-test and a permutation test."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.paired_tests import (
    DRAWS,
    MAX_SIGNS,
    ROUNDING,
    Difference,
    Kind,
    t_test_p,
)

MAX_ENUMERATED_PERMUTATIONS = 200_000
"""Largest number of permutations that are all counted."""


def unpaired(values: ArrayLike, against: ArrayLike) -> Difference:
    """Compare two sides with separate seeds, ``values`` minus ``against``, by Welch's t-test (1947)."""
    left, right = np.asarray(values, dtype=np.float64), np.asarray(against, dtype=np.float64)
    numbers = len(left), len(right)
    scale = float(max(np.abs(left).max(initial=0.0), np.abs(right).max(initial=0.0)))
    mean = float(left.mean() - right.mean()) if min(numbers) else math.nan
    if abs(mean) <= ROUNDING * scale:
        mean = 0.0
    nan = math.nan
    if min(numbers) < 2:
        kind: Kind = "single" if min(numbers) else "none"
        return Difference(kind, min(numbers), mean, nan, nan, nan, nan, nan, nan)
    permuted = permutation_p(left, right)
    smallest = 1 / math.comb(sum(numbers), numbers[0])
    spreads = [
        float(side.var(ddof=1)) if np.ptp(side) > ROUNDING * scale else 0.0
        for side in (left, right)
    ]
    parts = [spread / number for spread, number in zip(spreads, numbers, strict=True)]
    if not any(parts):
        kind = "constant" if mean else "identical"
        return Difference(
            kind, min(numbers), mean, 0.0, sum(numbers) - 2, nan, permuted, permuted, smallest
        )
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / sum(
        part**2 / (number - 1) for part, number in zip(parts, numbers, strict=True)
    )
    return Difference(
        kind="varied",
        n=min(numbers),
        mean=mean,
        error=error,
        degrees=degrees,
        effect=mean / math.sqrt(sum(spreads) / 2),
        p=t_test_p(mean, error, degrees),
        sign_flip_p=permuted,
        smallest_p=smallest,
    )


def permutation_p(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Return the two-sided p of the difference of means under permutations of the sides.

    Exact up to ``MAX_ENUMERATED_PERMUTATIONS`` permutations. Otherwise random permutations from a fixed seed and the
    observed order are counted.
    """
    scores = np.concatenate([left, right])
    size, total = len(left), float(scores.sum())
    expected = total * size / len(scores)
    observed = abs(float(left.sum()) - expected) - ROUNDING * float(np.abs(scores).sum())
    if math.comb(len(scores), size) <= MAX_ENUMERATED_PERMUTATIONS:
        sums = np.array([sum(chosen) for chosen in combinations(scores.tolist(), size)])
        return float((np.abs(sums - expected) >= observed).mean())
    draws = min(DRAWS, MAX_SIGNS // len(scores))
    permuted = np.random.default_rng(20_17).permuted(
        np.broadcast_to(scores, (draws, len(scores))), axis=1
    )
    hits = int((np.abs(permuted[:, :size].sum(axis=1) - expected) >= observed).sum())
    return (hits + 1) / (draws + 1)
