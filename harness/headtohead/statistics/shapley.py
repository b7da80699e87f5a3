"""Uncertainty of Shapley values that are estimated from sampled permutations."""

from __future__ import annotations

import math
from collections.abc import Sequence


def permutation_error(permutations: Sequence[Sequence[str]], changes: Sequence[float], possible: int) -> float:
    """Return the standard error of the mean change as an estimate of the mean over all permutations.

    A permutation and its reverse are sampled as a pair and count as a single draw. NaN for fewer than two
    draws, 0 if all permutations are evaluated.

    Args:
        permutations: The choices in the order in which each permutation applies them.
        changes: The change that a choice causes, by permutation.
        possible: The number of all permutations.
    """
    evaluated = len(permutations)
    if evaluated == possible:
        return 0.0
    draws: dict[frozenset[tuple[str, ...]], list[float]] = {}
    for permutation, change in zip(map(tuple, permutations), changes, strict=True):
        draws.setdefault(frozenset([permutation, permutation[::-1]]), []).append(change)
    number = len(draws)
    if number < 2:
        return math.nan
    mean = math.fsum(changes) / evaluated
    parts = (math.fsum(change - mean for change in pair) / evaluated for pair in draws.values())
    squares = math.fsum(part**2 for part in parts)
    return math.sqrt(number / (number - 1) * squares * (1 - evaluated / possible))
