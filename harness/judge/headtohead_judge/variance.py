"""Sources of variance: seeds and test sentences (crossed random effects), and the correlation of seeds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtri

from headtohead_judge.paired_tests import CONFIDENCE, Difference, Interval, t_quantile


def sentence_variance(values: ArrayLike) -> float:
    """Return the variance of a mean over seeds over samples of this number of sentences; it can be negative.

    The estimate is that of two-way random effects.

    Args:
        values: ``[seed, sentence]`` of at least two seeds and two sentences. For a corpus metric, `jackknife` values.
    """
    x = np.asarray(values, dtype=np.float64)
    if min(x.shape) < 2:
        raise ValueError(
            f"crossed effects need two seeds and two sentences, got {x.shape[0]} and {x.shape[1]}"
        )
    _, sentence, residual = _mean_squares(x)
    return (sentence - residual) / x.size


def with_sentences(over_seeds: Difference, values: ArrayLike) -> Interval:
    """Return the 95 % interval over seeds and sentences of a difference with ``values [seed, sentence]``.

    The interval over seeds is widened (Graybill and Wang 1980); each variance has its own t-quantile.
    """
    x = np.asarray(values, dtype=np.float64)
    sentences = x.shape[1]
    variance = max(0.0, sentence_variance(x))
    half_of_seeds = over_seeds.high - over_seeds.mean
    half_of_sentences = t_quantile(sentences - 1, CONFIDENCE) * math.sqrt(variance)
    half = math.hypot(half_of_seeds, half_of_sentences)
    return Interval(CONFIDENCE, over_seeds.mean - half, over_seeds.mean + half)


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
    """Return values ``[seed, sentence]`` of a corpus metric, with the score of each seed as their mean.

    The values are jackknife pseudo-values, shifted by the estimated bias.

    Args:
        score: The score of each seed over all sentences ``[seed]``.
        without: The score of each seed without each sentence ``[seed, sentence]``.
    """
    full = np.asarray(score, dtype=np.float64)
    rest = np.asarray(without, dtype=np.float64)
    sentences = rest.shape[1]
    deviations = rest.mean(axis=1, keepdims=True) - rest
    values: NDArray[np.float64] = full[:, None] + (sentences - 1) * deviations
    return values


def intraclass_correlation(scores: ArrayLike) -> tuple[float, Interval]:
    """Return the intra-class correlation of seeds, with its interval: the fraction of the variance that variants share.

    The scores are ``[variant, seed]``.

    It is the consistency ICC(3, 1) of two-way scores with the F-interval of P. E. Shrout and J. L. Fleiss (Intraclass
    correlations, Psychological Bulletin 86, 1979). NaN for fewer than two variants or seeds, and without variance.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2:
        return math.nan, Interval(CONFIDENCE, math.nan, math.nan)
    variants, seeds = x.shape
    _, seed, residual = _mean_squares(x)
    if not residual > 0:
        correlation = 1.0 if seed > 0 else math.nan
        return correlation, Interval(CONFIDENCE, math.nan, math.nan)

    def as_correlation(ratio: float) -> float:
        return float((ratio - 1) / (ratio + variants - 1))

    ratio = seed / residual
    tail = (1 + CONFIDENCE) / 2
    degrees = seeds - 1
    residual_degrees = degrees * (variants - 1)
    low = as_correlation(ratio / fdtri(degrees, residual_degrees, tail))
    high = as_correlation(ratio * fdtri(residual_degrees, degrees, tail))
    return as_correlation(ratio), Interval(CONFIDENCE, low, high)
