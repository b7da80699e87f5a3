"""Sources of variance: seeds and test sentences (crossed random effects), and the correlation of seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from headtohead.statistics.paired_tests import CONFIDENCE, Interval


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its standard error and (effective) degrees of freedom."""

    mean: float
    error: float
    degrees: float

    @property
    def p(self) -> float:
        """Two-sided p of the t-test against 0."""
        return 2 * float(stdtr(self.degrees, -abs(self.mean) / self.error)) if self.error > 0 else math.nan

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the t-interval."""
        half = float(stdtrit(self.degrees, (1 + confidence) / 2)) * self.error
        return Interval(confidence, self.mean - half, self.mean + half)


@dataclass(frozen=True)
class CrossedEstimate(MeanEstimate):
    """An estimate over seeds and sentences.

    ``seed_variance`` is the variance over seeds of a score on these sentences, ``sentence_variance`` the variance
    over samples of this number of sentences of the mean over all seeds. Both are unbiased and can be negative.
    """

    seed_variance: float
    sentence_variance: float


def crossed(values: ArrayLike) -> CrossedEstimate:
    """Return the mean of ``[seed, sentence]`` with an error that includes both sources.

    Two-way random effects without replication. With the mean squares S of seeds, T of sentences and E of the
    residuals, the variance of the mean is (S + T - E) / (seeds * sentences), and at least S or T over the same
    number. Degrees of freedom: Satterthwaite.

    Args:
        values: At least two seeds and two sentences. For a corpus metric, `jackknife` values.
    """
    x = np.asarray(values, dtype=np.float64)
    seeds, sentences = x.shape
    if min(seeds, sentences) < 2:
        raise ValueError(f"crossed effects need two seeds and two sentences, got {seeds} and {sentences}")
    mean = float(x.mean())
    by_seed, by_sentence = x.mean(axis=1), x.mean(axis=0)
    seed = sentences * float(((by_seed - mean) ** 2).sum()) / (seeds - 1)
    sentence = seeds * float(((by_sentence - mean) ** 2).sum()) / (sentences - 1)
    residual = float(((x - by_seed[:, None] - by_sentence + mean) ** 2).sum()) / ((seeds - 1) * (sentences - 1))
    total = seed + sentence - residual
    squares = seed**2 / (seeds - 1) + sentence**2 / (sentences - 1)
    if total >= max(seed, sentence):
        degrees = total**2 / (squares + residual**2 / ((seeds - 1) * (sentences - 1))) if squares else seeds - 1.0
    else:
        total, degrees = max((seed, seeds - 1.0), (sentence, sentences - 1.0))
    return CrossedEstimate(
        mean=mean,
        error=math.sqrt(total / x.size),
        degrees=degrees,
        seed_variance=seed / sentences,
        sentence_variance=(sentence - residual) / x.size,
    )


def jackknife(score: ArrayLike, without: ArrayLike) -> NDArray[np.float64]:
    """Return values ``[seed, sentence]`` of a corpus metric, with the score of each seed as their mean.

    The values are jackknife pseudo-values, shifted by the estimated bias.

    Args:
        score: The score of each seed over all sentences ``[seed]``.
        without: The score of each seed without each sentence ``[seed, sentence]``.
    """
    full, rest = np.asarray(score, dtype=np.float64), np.asarray(without, dtype=np.float64)
    values: NDArray[np.float64] = full[:, None] + (rest.shape[1] - 1) * (rest.mean(axis=1, keepdims=True) - rest)
    return values


def intraclass_correlation(scores: ArrayLike) -> float:
    """Return the intra-class correlation of seeds, the fraction of the variance that variants share by seed.

    It is the consistency ICC(3, 1) of two-way scores. NaN for fewer than two variants or seeds, and without variance.

    Args:
        scores: ``[variant, seed]``.
    """
    x = np.asarray(scores, dtype=np.float64)
    if x.ndim != 2 or min(x.shape) < 2:
        return math.nan
    variants, seeds = x.shape
    by_seed = x.mean(axis=0)
    residuals = x - x.mean(axis=1, keepdims=True) - by_seed + x.mean()
    seed = variants * float(((by_seed - by_seed.mean()) ** 2).sum()) / (seeds - 1)
    residual = float((residuals**2).sum()) / ((variants - 1) * (seeds - 1))
    total = seed + (variants - 1) * residual
    return (seed - residual) / total if total > 0 else math.nan


def pooled(scores: ArrayLike, weights: ArrayLike) -> MeanEstimate:
    """Return a weighted sum of variant means, with the variance within variants pooled over all variants.

    Seeds are not paired.

    Args:
        scores: ``[variant, seed]``, at least two seeds.
        weights: Weight of each variant ``[variant]``, for example 1 and -1 for a difference.
    """
    x, w = np.asarray(scores, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    variants, seeds = x.shape
    variance = float(x.var(axis=1, ddof=1).mean())
    return MeanEstimate(float(w @ x.mean(axis=1)), math.sqrt(variance * float(w @ w) / seeds), variants * (seeds - 1))
