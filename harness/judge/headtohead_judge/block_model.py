"""The block model of a study: scores are the sum of a variant, a seed and a residual.

The variance of a contrast is moderated: it is a weighted mean of the variance of its own paired differences and of a
common variance (G. K. Smyth, Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments, Statistical Applications in Genetics and Molecular Biology 3, 2004; implemented as
``squeezeVar`` in limma). The common variance is the larger of two: the residual variance of all variants, and the mean
over the contrasts of a family of the variance of their own differences, per squared weight. The second one is larger if
the effect of a seed is not the same for all variants. The weight of the common variance, in degrees of freedom, is
estimated from how much the variants' variances differ. Variants with a significantly larger variance have no part in
it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.paired_tests import Difference, rounding_error

Name = TypeVar("Name", bound=Hashable)

MAX_PRIOR_DEGREES = 10.0
"""Largest weight of the common variance. A larger one would not protect against a variant with another variance."""

GATE = 0.07
"""Level of the F-tests for a larger variance, divided by the number of variants."""


@dataclass(frozen=True)
class BlockModel:
    """The common variance of all variants.

    Attributes:
        residual_variance: Mean square of the residuals, the variance of a score that neither variant nor seed explains.
        degrees: Degrees of freedom of ``residual_variance``, (variants - 1) (seeds - 1) of one data set.
        prior: Degrees of freedom that the common variance has in the variance of a contrast, 0 to `MAX_PRIOR_DEGREES`.
        contrast_variance: That of the contrasts of a family, as the function of this name returns it.
        contrast_degrees: Degrees of freedom of ``contrast_variance``.
    """

    residual_variance: float
    degrees: float
    prior: float
    contrast_variance: float = 0.0
    contrast_degrees: float = 0.0

    @property
    def variance(self) -> float:
        """The common variance: the larger of the variances of residuals and contrasts."""
        return max(self.residual_variance, self.contrast_variance)

    @property
    def common_degrees(self) -> float:
        """Largest degrees of freedom of a variance that is moderated towards the common variance."""
        if self.contrast_variance > self.residual_variance:
            return min(self.degrees, self.contrast_degrees)
        return self.degrees

    @property
    def ratio(self) -> float:
        """The variance of contrasts divided by that of residuals.

        It is 1 on average if a seed has the same effect on all variants. NaN without a residual variance.
        """
        if not self.residual_variance:
            return math.nan
        return self.contrast_variance / self.residual_variance

    def moderated(self, difference: Difference, weight: float) -> Difference:
        """Return a difference with the moderated variance of its mean over seeds.

        Args:
            difference: The difference with its own variance; it is returned as it is if its seeds do not vary.
            weight: Sum of the squared weights of the scores in the difference of a seed; 2 for two variants.
        """
        if difference.kind != "varied":
            return difference
        seeds = difference.n
        own_degrees = seeds - 1
        total_degrees = self.prior + own_degrees
        common_squares = self.prior * weight * self.variance
        own_squares = own_degrees * seeds * difference.sources[0].variance
        variance = (common_squares + own_squares) / total_degrees
        degrees = max(own_degrees, min(total_degrees, self.common_degrees))
        return difference.with_seed_variance(variance / seeds, degrees)


def contrast_variance(contrasts: Iterable[tuple[Difference, float]]) -> tuple[float, float]:
    """Return the mean of the variances of differences of a seed, divided by their squared weights, and its degrees.

    The degrees of freedom are the sum of those of the contrasts. The variances of contrasts with a common side are not
    independent, so this is the largest number that the mean can have.

    Args:
        contrasts: The differences with their own variances, and the sums of their squared weights. Differences that
            do not vary over seeds have no part in the mean; both are 0 if none does.
    """
    variances = []
    degrees = 0.0
    for difference, weight in contrasts:
        if difference.kind == "varied":
            variances.append(difference.n * difference.sources[0].variance / weight)
            degrees += difference.n - 1
    mean = sum(variances) / len(variances) if variances else 0.0
    return mean, degrees


def block_model(scores: ArrayLike) -> BlockModel | None:
    """Return the block model of scores ``[variant, seed]``; None for fewer than two variants or seeds.

    NaN is a missing score. Variants and seeds with a single score do not enter the model. Variants with the same
    scores in every seed, such as two implementations of one function, enter it once.
    """
    x, _ = _distinct(scores)
    while True:
        is_score = np.isfinite(x)
        rows = is_score.sum(axis=1) > 1
        columns = is_score.sum(axis=0) > 1
        if rows.all() and columns.all():
            break
        x = x[rows][:, columns]
    variants, seeds = x.shape
    degrees = int(is_score.sum()) - variants - seeds + 1
    if min(variants, seeds) < 2 or degrees < 1:
        return None
    residuals = x - np.nanmean(x)
    for _ in range(200):  # alternating projections; without missing scores, the first pair is exact
        before = residuals
        residuals = residuals - np.nanmean(residuals, axis=1, keepdims=True)
        residuals = residuals - np.nanmean(residuals, axis=0)
        if np.nanmax(np.abs(residuals - before)) <= 1e-12 * np.nanmax(np.abs(x)):
            break
    variant_degrees = is_score.sum(axis=1) - 1
    squares = np.nansum(residuals**2, axis=1)
    variances = squares / variant_degrees * variants / (variants - 1)
    prior = min(MAX_PRIOR_DEGREES, prior_degrees(variances, variant_degrees))
    return BlockModel(float(squares.sum() / degrees), degrees, prior)


def _distinct(scores: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the rows of ``[variant, seed]`` with different scores, and for each variant the number of its row.

    Scores that differ by no more than their `rounding_error` are the same, and so are missing ones.
    """
    x = np.array(scores, dtype=np.float64, ndmin=2)
    step = rounding_error(x)
    keys = np.round(x / step) if step else x
    # A missing score is NaN, which differs from itself.
    keys = np.where(np.isnan(keys), np.inf, keys)
    _, first, rows = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return x[first], rows.reshape(-1)


def pooled(scores: Mapping[Name, Sequence[float]]) -> tuple[BlockModel | None, dict[Name, float]]:
    """Return the block model of the variants without a larger variance, and the `larger_deviations` of the others.

    Contrasts of the others have no block model: their test is the paired t-test.
    """
    if not scores:
        return None, {}
    ratios = dict(zip(scores, larger_deviations([*scores.values()]), strict=True))
    larger = {name: ratio for name, ratio in ratios.items() if ratio}
    rows = [row for name, row in scores.items() if name not in larger]
    return block_model(rows), larger


def combined(parts: Sequence[tuple[float, BlockModel | None]]) -> BlockModel | None:
    """Return the block model of a difference over independent data sets, with its weights in each; None without one.

    The residual variance is the weighted mean, its degrees of freedom are those of Satterthwaite (1946), and the prior
    degrees are those of the data set with the fewest.

    Args:
        parts: The sum of the squared weights of the scores of each data set in the difference, with its block model.
    """
    models = [(weight, model) for weight, model in parts if model]
    if not models or len(models) < len(parts):
        return None
    if len(models) == 1:
        return models[0][1]
    total = 0.0
    squares = 0.0
    weights = 0.0
    for weight, model in models:
        variance = weight * model.residual_variance
        total += variance
        squares += variance**2 / model.degrees
        weights += weight
    degrees = sum(model.degrees for _, model in models)
    if squares:
        degrees = total**2 / squares
    prior = min(model.prior for _, model in models)
    return BlockModel(residual_variance=total / weights, degrees=degrees, prior=prior)


def larger_deviations(scores: ArrayLike) -> list[float]:
    """Return, of each variant of ``[variant, seed]``, how much more its scores vary than those of the others.

    The ratio is that of the standard deviations; 0 if F-tests find no larger variance. In the order of the variances,
    each variant of the upper half is compared with all before it. The first with a larger variance, and all after it,
    have a ratio, so several variants with large variances do not conceal each other.
    """
    x, rows = _distinct(scores)
    degrees = np.maximum(np.isfinite(x).sum(axis=1) - 1, 0)
    means = np.nansum(x, axis=1, keepdims=True) / (degrees[:, None] + 1)
    squares = np.nansum((x - means) ** 2, axis=1)
    variances = squares / np.maximum(degrees, 1)
    order = variances.argsort()
    ratios = np.zeros(len(x))
    rounding = 1e-24 * np.nansum(x**2)
    half = math.ceil(len(x) / 2)
    for count in range(max(2, half), len(x)):
        smaller = order[:count]
        following = order[count]
        common_degrees = degrees[smaller].sum()
        common = squares[smaller].sum() / max(1, common_degrees)
        if common <= rounding:
            continue
        ratio = variances[following] / common
        if scipy.special.fdtrc(degrees[following], common_degrees, ratio) <= GATE / len(x):
            larger = order[count:]
            ratios[larger] = np.sqrt(variances[larger] / common)
            break
    return [float(ratio) for ratio in ratios[rows.ravel()]]


def expected_degrees(variants: int, seeds: int, contrasts: int | None = None) -> float:
    """Return the degrees of freedom with which `power.minimum_detectable_effect` is that of a contrast of two variants.

    All variants have the same variance. The degrees of freedom that the other variants add are fewer than those of
    the moderated variance: its prior degrees are estimated, and the common variance is the larger of two. Their number
    is fitted to simulated studies of 3 to 12 variants and 2 to 12 seeds. Fewer contrasts than variants - 1 add as many
    as in a study with one variant more than contrasts.

    Args:
        variants: Number of variants that share the effects of the seeds, at least two.
        seeds: Number of seeds, at least two.
        contrasts: Number of contrasts of the family; by default variants - 1.
    """
    own_degrees = seeds - 1
    if contrasts is not None:
        variants = min(variants, contrasts + 1)
    added = (variants - 2) * own_degrees
    if added <= 0:
        return own_degrees
    at_most = 13.0 * own_degrees / (seeds + 1.6)
    return own_degrees + 1 / (1 / added + 1 / at_most)


def prior_degrees(variances: ArrayLike, degrees: ArrayLike) -> float:
    """Return the prior degrees of freedom of sample variances; infinite if they differ no more than by chance.

    The variance of log F-distributed values is matched (Smyth 2004, section 6.2). Variances of 0 are left out.
    """
    s, d = np.broadcast_arrays(
        np.asarray(variances, dtype=np.float64), np.asarray(degrees, dtype=np.float64)
    )
    is_positive = s > 0
    s = s[is_positive]
    d = d[is_positive]
    if len(s) < 2:
        return math.inf
    at_least = np.maximum(s, 1e-5 * np.median(s))
    logs = np.log(at_least) - scipy.special.digamma(d / 2) + np.log(d / 2)
    excess = float(logs.var(ddof=1) - scipy.special.polygamma(1, d / 2).mean())
    if not excess > 0:
        return math.inf
    return 2 * _inverse_trigamma(excess)


def _inverse_trigamma(value: float) -> float:
    """Return y with trigamma(y) = value, by Newton's method on 1 / trigamma, which is nearly linear."""
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(scipy.special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(scipy.special.polygamma(2, y))
        y += step
        if abs(step) < 1e-10 * y:
            break
    return y
