"""The block model of a study: scores are the sum of a variant, a seed and a residual.

The variance of a contrast is moderated: it is a weighted mean of the variance of its own paired differences and of the
residual variance of all variants (G. K. Smyth, Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments, Statistical Applications in Genetics and Molecular Biology 3, 2004; implemented
as ``squeezeVar`` in limma). The weight of the residual variance, in degrees of freedom, is estimated from how much the
variants' variances differ. Variants with a significantly larger variance have no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma, fdtrc, polygamma

from headtohead_judge.paired_tests import Difference, t_test_p

MAX_PRIOR_DEGREES = 10.0
"""Largest weight of the common variance. A larger one would not protect against a variant with another variance."""

GATE = 0.07
"""Level of the F-tests for a larger variance, divided by the number of variants."""


@dataclass(frozen=True)
class BlockModel:
    """The residual variance of all variants.

    Attributes:
        variance: Mean square of the residuals, the variance of a score that neither variant nor seed explains.
        degrees: Degrees of freedom of ``variance``, (variants - 1) (seeds - 1) of one data set.
        prior: Degrees of freedom that ``variance`` has in the variance of a contrast, 0 to `MAX_PRIOR_DEGREES`.
    """

    variance: float
    degrees: float
    prior: float

    def moderated(self, found: Difference, weight: float) -> Difference:
        """Return a difference with the moderated variance in its standard error and p-value.

        Args:
            found: The difference with its own variance; it is returned as it is if its seeds do not vary.
            weight: Sum of the squared weights of the scores in the difference of a seed; 2 for two variants.
        """
        if found.kind != "varied":
            return found
        own = found.n - 1
        total = self.prior + own
        variance = (self.prior * weight * self.variance + own * found.n * found.error**2) / total
        error, degrees = math.sqrt(variance / found.n), max(own, min(total, self.degrees))
        return replace(found, error=error, degrees=degrees, p=t_test_p(found.mean, error, degrees))


def block_model(scores: ArrayLike) -> BlockModel | None:
    """Return the block model of scores ``[variant, seed]``; None for fewer than two variants or seeds.

    NaN is a missing score. Variants and seeds with a single score do not enter the model. Variants with the same
    scores in every seed, such as two implementations of one function, enter it once.
    """
    x = np.unique(np.array(scores, dtype=np.float64, ndmin=2), axis=0)
    while True:
        known = np.isfinite(x)
        rows, columns = known.sum(axis=1) > 1, known.sum(axis=0) > 1
        if rows.all() and columns.all():
            break
        x = x[rows][:, columns]
    variants, seeds = x.shape
    degrees = int(known.sum()) - variants - seeds + 1
    if min(variants, seeds) < 2 or degrees < 1:
        return None
    residuals = x - np.nanmean(x)
    for _ in range(200):  # alternating projections; without missing scores, the first pair is exact
        before = residuals
        residuals = residuals - np.nanmean(residuals, axis=1, keepdims=True)
        residuals = residuals - np.nanmean(residuals, axis=0)
        if np.nanmax(np.abs(residuals - before)) <= 1e-12 * np.nanmax(np.abs(x)):
            break
    own_degrees = known.sum(axis=1) - 1
    squares = np.nansum(residuals**2, axis=1)
    prior = prior_degrees(squares / own_degrees * variants / (variants - 1), own_degrees)
    return BlockModel(float(squares.sum() / degrees), degrees, min(MAX_PRIOR_DEGREES, prior))


def pooled(scores: Mapping[str, Sequence[float]]) -> tuple[BlockModel | None, dict[str, float]]:
    """Return the block model of the variants without a larger variance, and the `larger_deviations` of the others.

    Contrasts of the others have no block model: their test is the paired t-test.
    """
    if not scores:
        return None, {}
    ratios = dict(zip(scores, larger_deviations([*scores.values()]), strict=True))
    larger = {name: ratio for name, ratio in ratios.items() if ratio}
    return block_model([row for name, row in scores.items() if name not in larger]), larger


def combined(parts: Sequence[tuple[float, BlockModel | None]]) -> BlockModel | None:
    """Return the block model of a difference over independent data sets, with its weights in each; None without one.

    The variance is the weighted mean, its degrees of freedom are those of Satterthwaite (1946), and the prior degrees
    are those of the data set with the fewest.

    Args:
        parts: The sum of the squared weights of the scores of each data set in the difference, with its block model.
    """
    models = [(weight, model) for weight, model in parts if model]
    if not models or len(models) < len(parts):
        return None
    if len(models) == 1:
        return models[0][1]
    terms = [(weight * model.variance, model.degrees) for weight, model in models]
    total = sum(term for term, _ in terms)
    squares = sum(term**2 / degrees for term, degrees in terms)
    return BlockModel(
        variance=total / sum(weight for weight, _ in models),
        degrees=total**2 / squares if squares else sum(degrees for _, degrees in terms),
        prior=min(model.prior for _, model in models),
    )


def larger_deviations(scores: ArrayLike) -> list[float]:
    """Return, of each variant of ``[variant, seed]``, how much more its scores vary than those of the others.

    The ratio is that of the standard deviations; 0 if F-tests find no larger variance. In the order of the variances,
    each variant of the upper half is compared with all before it. The first with a larger variance, and all after it,
    have a ratio, so several variants with large variances do not conceal each other.
    """
    x, rows = np.unique(np.array(scores, dtype=np.float64, ndmin=2), axis=0, return_inverse=True)
    degrees = np.maximum(np.isfinite(x).sum(axis=1) - 1, 0)
    squares = np.nansum(
        (x - np.nansum(x, axis=1, keepdims=True) / (degrees[:, None] + 1)) ** 2, axis=1
    )
    variances = squares / np.maximum(degrees, 1)
    order, ratios, rounding = variances.argsort(), np.zeros(len(x)), 1e-24 * np.nansum(x**2)
    for count in range(max(2, math.ceil(len(x) / 2)), len(x)):
        following, known = order[count], degrees[order[:count]].sum()
        common = squares[order[:count]].sum() / max(1, known)
        if common > rounding and fdtrc(
            degrees[following], known, variances[following] / common
        ) <= GATE / len(x):
            ratios[order[count:]] = np.sqrt(variances[order[count:]] / common)
            break
    return [float(ratio) for ratio in ratios[rows.ravel()]]


def expected_degrees(variants: int, seeds: int) -> float:
    """Return the degrees of freedom of a contrast of two variants, if all variants have the same variance."""
    return max(seeds - 1, min(MAX_PRIOR_DEGREES + seeds - 1, (variants - 1) * (seeds - 1)))


def prior_degrees(variances: ArrayLike, degrees: ArrayLike) -> float:
    """Return the prior degrees of freedom of sample variances; infinite if they differ no more than by chance.

    The variance of log F-distributed values is matched (Smyth 2004, section 6.2). Variances of 0 are left out.
    """
    s, d = np.broadcast_arrays(
        np.asarray(variances, dtype=np.float64), np.asarray(degrees, dtype=np.float64)
    )
    s, d = s[s > 0], d[s > 0]
    if len(s) < 2:
        return math.inf
    logs = np.log(np.maximum(s, 1e-5 * np.median(s))) - digamma(d / 2) + np.log(d / 2)
    excess = float(logs.var(ddof=1) - polygamma(1, d / 2).mean())
    return 2 * _inverse_trigamma(excess) if excess > 0 else math.inf


def _inverse_trigamma(value: float) -> float:
    """Return y with trigamma(y) = value, by Newton's method on 1 / trigamma, which is nearly linear."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y
