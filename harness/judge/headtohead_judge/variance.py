"""Components of variance: seeds and examples (crossed random effects), and the correlation of seeds."""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.paired_tests import CONFIDENCE, Interval


def example_variance(values: ArrayLike) -> float:
    """Return the variance of a mean over seeds over samples of this number of examples; it can be negative.

    The estimate is that of two-way random effects.

    Args:
        values: ``[seed, example]`` of at least two seeds and two examples, or groups of examples.

    Raises:
        ValueError: If there are fewer than two seeds or examples.
    """
    x = np.asarray(values, dtype=np.float64)
    if min(x.shape) < 2:
        raise ValueError(
            f"crossed effects need two seeds and two examples, got {x.shape[0]} and {x.shape[1]}"
        )
    _, example, residual = _mean_squares(x)
    return (example - residual) / x.size


def _mean_squares(x: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean squares of rows, columns and residuals of a two-way table without replication."""
    rows, columns = x.shape
    row_means = x.mean(axis=1)
    column_means = x.mean(axis=0)
    mean = x.mean()
    residuals = x - row_means[:, None] - column_means + mean
    of_rows = columns * float(((row_means - mean) ** 2).sum()) / (rows - 1)
    of_columns = rows * float(((column_means - mean) ** 2).sum()) / (columns - 1)
    of_residuals = float((residuals**2).sum()) / ((rows - 1) * (columns - 1))
    return of_rows, of_columns, of_residuals


def variant_variance(scores: ArrayLike) -> float:
    """Return the variance of the true means of variants, from two-way random effects; the estimate can be negative.

    The scores are ``[variant, seed]``. Effects of a seed that all variants share do not enter. NaN for fewer than two
    variants or seeds.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2:
        return math.nan
    variant, _, residual = _mean_squares(x)
    return (variant - residual) / len(x[0])


def jackknife(score: ArrayLike, without: ArrayLike) -> NDArray[np.float64]:
    """Return values ``[seed, example]`` of a corpus metric, with the score of each seed as their mean.

    The values are jackknife pseudo-values, shifted by the estimated bias.

    Args:
        score: The score of each seed over all examples ``[seed]``.
        without: The score of each seed without each example ``[seed, example]``.
    """
    full = np.asarray(score, dtype=np.float64)
    rest = np.asarray(without, dtype=np.float64)
    examples = rest.shape[1]
    deviations = rest.mean(axis=1, keepdims=True) - rest
    values: NDArray[np.float64] = full[:, None] + (examples - 1) * deviations
    return values


def intraclass_correlation(scores: ArrayLike) -> tuple[float, Interval]:
    """Return the intra-class correlation of seeds, with its interval: the fraction of the variance that variants share.

    The scores are ``[variant, seed]``.

    It is the consistency ICC(3, 1) of two-way scores with the F-interval of P. E. Shrout and J. L. Fleiss (Intraclass
    correlations, Psychological Bulletin 86, 1979). NaN for fewer than two variants or seeds, and without variance.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2:
        return math.nan, Interval(math.nan, math.nan)
    variants, seeds = x.shape
    _, seed, residual = _mean_squares(x)
    if not residual > 0:
        correlation = 1.0 if seed > 0 else math.nan
        return correlation, Interval(math.nan, math.nan)

    def as_correlation(ratio: float) -> float:
        return float((ratio - 1) / (ratio + variants - 1))

    ratio = seed / residual
    tail = (1 + CONFIDENCE) / 2
    degrees = seeds - 1
    residual_degrees = degrees * (variants - 1)
    low = as_correlation(ratio / scipy.special.fdtri(degrees, residual_degrees, tail))
    high = as_correlation(ratio * scipy.special.fdtri(residual_degrees, degrees, tail))
    return as_correlation(ratio), Interval(low, high)
