"""The intervals of a family of contrasts for many simulated studies at once.

`headtohead_judge` judges one study at a time. The functions here compute the same numbers for arrays of studies without
missing or repeated scores; a test compares both. Arrays have the axes ``study contrast`` or ``study variant seed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, fdtrc, polygamma, stdtrit

from headtohead_judge.block_model import GATE, MAX_PRIOR_DEGREES
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import level_of_each
from headtohead_judge.verdicts import Judgement, judge

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SMALLEST_VARIANCE = 1e-300
"""Replaces variances of 0, of two variants with the same difference in every seed."""


class Spread(NamedTuple):
    """A source of variance of mean differences.

    Attributes:
        variance: The variance that it adds to each mean ``[study, contrast]``.
        degrees: Degrees of freedom of each variance ``[study, contrast]``.
    """

    variance: Floats
    degrees: Floats


@dataclass(frozen=True)
class Intervals:
    """The intervals of the contrasts of studies.

    Attributes:
        mean: The mean difference ``[study, contrast]``.
        sources: The sources of its variance, the training seeds first.
        level: 1 minus the confidence of a single interval.
    """

    mean: Floats
    sources: tuple[Spread, ...]
    level: float

    @property
    def half(self) -> Floats:
        """Half the width of each interval ``[study, contrast]``."""
        square = np.zeros_like(self.mean)
        for source in self.sources:
            square += source.variance * stdtrit(source.degrees, self.level / 2) ** 2
        half: Floats = np.sqrt(square)
        return half

    @property
    def has_direction(self) -> Flags:
        """Whether each interval excludes 0 ``[study, contrast]``."""
        return np.abs(self.mean) > self.half

    def is_inside(self, margin: float) -> Flags:
        """Return whether each interval lies inside the margin ``[study, contrast]``."""
        return np.abs(self.mean) + self.half < margin

    def is_outside(self, margin: float) -> Flags:
        """Return whether each interval excludes every difference below the margin ``[study, contrast]``."""
        return np.abs(self.mean) - self.half >= margin

    def covers(self, truth: float) -> Flags:
        """Return whether each interval contains the true difference ``[study, contrast]``."""
        return np.abs(self.mean - truth) <= self.half

    def with_source(self, source: Spread) -> Intervals:
        """Return the intervals with another source of variance."""
        return replace(self, sources=(*self.sources, source))


def with_first(variants: int, contrasts: int | None = None) -> Floats:
    """Return the weights ``[contrast, variant]`` of variants minus the first one.

    Args:
        variants: Number of variants, at least two.
        contrasts: Number of variants that are compared with the first one; by default all others.
    """
    if contrasts is None:
        contrasts = variants - 1
    each = np.eye(variants)
    weights: Floats = each[1 : contrasts + 1] - each[0]
    return weights


def moderated_intervals(
    scores: Floats, weights: Floats | None = None, level: float | None = None
) -> Intervals:
    """Return the intervals of a family of contrasts over training seeds, as `headtohead_judge` computes them.

    Args:
        scores: ``[study, variant, seed]``, finite and all different, of at least two variants and two seeds.
        weights: ``[contrast, variant]``; by default those of each variant minus the first one.
        level: 1 minus the confidence of one interval; by default that of simultaneous 95 % intervals.
    """
    if weights is None:
        weights = with_first(scores.shape[1])
    own = paired_intervals(scores, weights, level)
    seeds = scores.shape[2]
    own_degrees = seeds - 1
    own_variance = own.sources[0].variance * seeds
    squared_weights = (weights**2).sum(axis=1)

    larger = larger_variance(scores)
    is_apart = larger @ (weights != 0).T
    residual_variance, pooled_degrees, prior_degrees = _block_models(scores, larger)
    contrast_variance = _mean_where(own_variance / squared_weights, ~is_apart)
    common = np.fmax(residual_variance, contrast_variance)[:, None] * squared_weights

    contrast_degrees = own_degrees * (~is_apart).sum(axis=1)
    is_of_contrasts = contrast_variance > residual_variance
    common_degrees = np.where(
        is_of_contrasts, np.minimum(pooled_degrees, contrast_degrees), pooled_degrees
    )

    prior = np.where(is_apart, 0.0, prior_degrees[:, None])
    total_degrees = prior + own_degrees
    squares = prior * np.where(is_apart, 0.0, common) + own_degrees * own_variance
    degrees = np.maximum(own_degrees, np.minimum(total_degrees, common_degrees[:, None]))
    of_seeds = Spread(squares / total_degrees / seeds, degrees)
    return replace(own, sources=(of_seeds,))


def paired_intervals(
    scores: Floats, weights: Floats | None = None, level: float | None = None
) -> Intervals:
    """Return the intervals of paired t-tests; the arguments are those of `moderated_intervals`."""
    _, variants, seeds = scores.shape
    if weights is None:
        weights = with_first(variants)
    if level is None:
        level = level_of_each(len(weights))
    differences = weights @ scores
    variance = differences.var(axis=2, ddof=1) / seeds
    degrees = np.full_like(variance, seeds - 1)
    return Intervals(differences.mean(axis=2), (Spread(variance, degrees),), level)


def crossed_intervals(values: Floats, weights: Floats | None = None) -> Intervals:
    """Return the intervals over training seeds and groups of test examples.

    Args:
        values: ``[study, variant, seed, group]`` with the score of a run as their mean.
        weights: ``[contrast, variant]``; by default those of each variant minus the first one.
    """
    _, variants, seeds, groups = values.shape
    if weights is None:
        weights = with_first(variants)
    intervals = moderated_intervals(values.mean(axis=3), weights)
    differences = np.einsum("cv,svng->scng", weights, values)
    of_seeds = differences.mean(axis=3, keepdims=True)
    of_groups = differences.mean(axis=2, keepdims=True)
    mean = of_seeds.mean(axis=2, keepdims=True)
    residuals = differences - of_seeds - of_groups + mean
    group_square = seeds * ((of_groups - mean) ** 2).sum(axis=(2, 3)) / (groups - 1)
    residual_square = (residuals**2).sum(axis=(2, 3)) / ((seeds - 1) * (groups - 1))
    variance = np.maximum(0.0, group_square - residual_square) / (seeds * groups)
    return intervals.with_source(Spread(variance, np.full_like(variance, groups - 1)))


def larger_variance(scores: Floats) -> Flags:
    """Return which variants of ``[study, variant, seed]`` have a larger variance than the others."""
    studies, variants, seeds = scores.shape
    variance = scores.var(axis=2, ddof=1)
    order = variance.argsort(axis=1)
    ascending = np.take_along_axis(variance, order, axis=1)
    mean_of_first = ascending.cumsum(axis=1) / np.arange(1, variants + 1)
    is_larger_in_order = np.zeros((studies, variants), dtype=bool)
    half = -(-variants // 2)
    for count in range(max(2, half), variants):
        ratio = ascending[:, count] / mean_of_first[:, count - 1]
        p = fdtrc(seeds - 1, count * (seeds - 1), ratio)
        is_larger_in_order[:, count] = p <= GATE / variants
    is_larger_in_order = np.logical_or.accumulate(is_larger_in_order, axis=1)
    is_larger = np.zeros((studies, variants), dtype=bool)
    np.put_along_axis(is_larger, order, is_larger_in_order, axis=1)
    return is_larger


def _block_models(scores: Floats, is_left_out: Flags) -> tuple[Floats, Floats, Floats]:
    """Return residual variance, its degrees of freedom and the prior degrees of each study ``[study]``."""
    seeds = scores.shape[2]
    own_degrees = seeds - 1
    count = (~is_left_out).sum(axis=1)
    deviations = scores - scores.mean(axis=2, keepdims=True)
    deviations = np.where(is_left_out[:, :, None], np.nan, deviations)
    residuals = deviations - np.nanmean(deviations, axis=1, keepdims=True)
    squares = (residuals**2).sum(axis=2)
    degrees = (count - 1) * own_degrees
    variance = np.nansum(squares, axis=1) / degrees

    variances = squares / own_degrees * (count / (count - 1))[:, None]
    median = np.nanmedian(variances, axis=1, keepdims=True)
    at_least = np.maximum(variances, np.maximum(1e-5 * median, SMALLEST_VARIANCE))
    logs = np.log(at_least) - digamma(own_degrees / 2) + np.log(own_degrees / 2)
    excess = np.nanvar(logs, axis=1, ddof=1) - polygamma(1, own_degrees / 2)
    prior = np.full(len(scores), MAX_PRIOR_DEGREES)
    is_smaller = excess > polygamma(1, MAX_PRIOR_DEGREES / 2)
    prior[is_smaller] = 2 * _inverse_trigamma(excess[is_smaller])
    return variance, degrees, prior


def _inverse_trigamma(values: Floats) -> Floats:
    """Return y with trigamma(y) = value, by Newton's method on 1 / trigamma."""
    y = 0.5 + 1 / values
    for _ in range(50):
        trigamma = polygamma(1, y)
        step = trigamma * (1 - trigamma / values) / polygamma(2, y)
        y = y + step
        if (np.abs(step) < 1e-10 * y).all():
            break
    return y


def _mean_where(values: Floats, is_counted: Flags) -> Floats:
    """Return the mean of the counted values of each row; NaN for a row without any."""
    count = is_counted.sum(axis=1)
    total = np.where(is_counted, values, 0.0).sum(axis=1)
    mean: Floats = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def judged(
    scores: Floats,
    weights: Floats | None = None,
    margin: float | None = None,
    looks: Looks | None = None,
) -> list[Judgement]:
    """Return the judgements of `headtohead_judge` on the contrasts of one study.

    Args:
        scores: ``[variant, seed]``; NaN for a run that does not count.
        weights: ``[contrast, variant]``; by default those of each variant minus the first one.
        margin: The smallest difference that matters.
        looks: The planned looks.
    """
    if weights is None:
        weights = with_first(len(scores))
    sides = [Side(str(number), "score") for number in range(len(scores))]
    by_seed = [dict(enumerate(row.tolist())) for row in scores]
    table = ScoreTable(dict(zip(sides, by_seed, strict=True)), (sides,))
    contrasts = []
    for number, row in enumerate(weights):
        setting = {side: float(weight) for side, weight in zip(sides, row, strict=True) if weight}
        contrasts.append(Contrast(str(number), "variants", (setting,)))
    differences = [estimate.difference for estimate in estimate_family(contrasts, table)]
    return judge(differences, margin=margin, looks=looks)


def any_direction(scores: Floats, weights: Floats | None = None) -> Flags:
    """Return whether each study has an interval that excludes 0 ``[study]``.

    Studies with missing runs, equal scores or differences that do not vary are judged one at a time.

    Args:
        scores: ``[study, variant, seed]``; NaN for a run that does not count.
        weights: ``[contrast, variant]``; by default those of each variant minus the first one.
    """
    if weights is None:
        weights = with_first(scores.shape[1])
    found = np.zeros(len(scores), dtype=bool)
    is_regular = _is_regular(scores, weights)
    found[is_regular] = moderated_intervals(scores[is_regular], weights).has_direction.any(axis=1)
    for study in np.flatnonzero(~is_regular):
        found[study] = has_direction(judged(scores[study], weights))
    return found


def _is_regular(scores: Floats, weights: Floats) -> Flags:
    """Return which studies have finite scores, no two equal variants, and differences that vary over seeds."""
    keys = np.sort(scores @ np.sqrt(np.arange(2.0, scores.shape[2] + 2)), axis=1)
    spread = np.ptp(weights @ scores, axis=2).min(axis=1)
    distance = np.diff(keys, axis=1).min(axis=1)
    regular: Flags = (spread > 1e-6) & (distance > 1e-9)  # comparisons with NaN are false
    return regular


def has_direction(judgements: Sequence[Judgement]) -> bool:
    """Return whether any contrast is better or worse."""
    return any(judgement.direction in ("better", "worse") for judgement in judgements)
