"""Tests of a record against its predecessor with variances of all records, and the power of Welch's test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma, stdtr

from headtohead_judge.paired_tests import t_test_p

DRAWS = 40_000
"""Number of simulated steps for a power."""


class Variance(NamedTuple):
    """A variance between seeds, with its degrees of freedom."""

    value: float
    degrees: float


class Side(NamedTuple):
    """The variance between the seeds of a record, and their number."""

    variance: Variance
    seeds: int


def pooled(groups: Sequence[Sequence[float]]) -> Variance:
    """Return the common variance of groups of scores, of which at least one has two."""
    degrees = [len(group) - 1 for group in groups]
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return Variance(squares / sum(degrees), sum(degrees))


def moderated(groups: Sequence[Sequence[float]]) -> list[Variance]:
    """Return the variance of each group of scores, shrunk towards that of all groups (empirical Bayes).

    The prior is a scaled inverse chi-squared distribution, fitted to the moments of the log variances (Smyth: Linear
    models and empirical Bayes methods for assessing differential expression, Statistical Applications in Genetics and
    Molecular Biology 3, 2004, section 6.2). Variances that differ no more than chance explains are pooled, and none
    has more degrees of freedom than all groups together. Every group has at least two scores, not all equal.
    """
    degrees = np.array([len(group) - 1 for group in groups], dtype=np.float64)
    variances = np.array([np.var(group, ddof=1) for group in groups])
    logarithms = np.log(variances) - digamma(degrees / 2) + np.log(degrees / 2)
    center = float(logarithms.mean())
    spread = float(logarithms.var(ddof=1) - polygamma(1, degrees / 2).mean())
    if spread <= 0:  # no more spread than equal variances have
        return [pooled(groups)] * len(groups)
    half = brentq(lambda x: polygamma(1, x) - spread, 1e-6, 1e9)
    prior = 2 * half
    prior_variance = math.exp(center + digamma(half) - math.log(half))
    shrunk = (prior * prior_variance + degrees * variances) / (prior + degrees)
    free = np.minimum(prior + degrees, degrees.sum())
    return [Variance(*pair) for pair in zip(shrunk.tolist(), free.tolist(), strict=True)]


def moderated_p(difference: float, sides: Sequence[Side], most_degrees: float) -> float:
    """Return the p-value of a difference of two means with the variances of its sides.

    The degrees of freedom are those of Welch and Satterthwaite, but at most ``most_degrees``, those of all records.
    """
    parts = [side.variance.value / side.seeds for side in sides]
    error = math.sqrt(sum(parts))
    squares = 0.0
    for part, side in zip(parts, sides, strict=True):
        squares += part**2 / side.variance.degrees
    return t_test_p(difference, error, min(sum(parts) ** 2 / squares, most_degrees))


def welch_power(effect: float, seeds: tuple[int, int], level: float) -> float:
    """Return how often Welch's test detects a difference of ``effect`` standard deviations, from simulated steps.

    Args:
        effect: The true difference, in standard deviations of both sides.
        seeds: The numbers of seeds of the two sides.
        level: The two-sided level of the test.
    """
    rng = np.random.default_rng(1)
    left = _simulated(rng, seeds[0])
    right = _simulated(rng, seeds[1])
    parts = left.var(axis=1, ddof=1) / seeds[0], right.var(axis=1, ddof=1) / seeds[1]
    squares = parts[0] ** 2 / (seeds[0] - 1) + parts[1] ** 2 / (seeds[1] - 1)
    degrees = (parts[0] + parts[1]) ** 2 / squares
    t = (left.mean(axis=1) + effect - right.mean(axis=1)) / np.sqrt(parts[0] + parts[1])
    p = 2 * stdtr(degrees, -np.abs(t))
    is_detected = (p <= level) & (np.sign(t) == np.sign(effect))
    return float(is_detected.mean())


def _simulated(rng: np.random.Generator, seeds: int) -> NDArray[np.float64]:
    """Return standard normal scores ``[step, seed]``."""
    return rng.standard_normal((DRAWS, seeds))
