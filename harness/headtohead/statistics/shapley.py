"""Shapley values from sampled permutations: tests over seeds and permutations, and choices that work only together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headtohead.statistics.paired_tests import ALPHA, ROUNDING, Kind, Paired, paired_differences, t_quantile, t_test_p
from headtohead.statistics.variance import CrossedEstimate, crossed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SampledDifference:
    """A mean over seeds and sampled permutations, with fields as in `headtohead.statistics.paired_tests.Paired`.

    Seeds and permutations are crossed random effects; a permutation and its reverse are a single draw.
    ``seed_variance`` is the variance of the mean over seeds, on the evaluated permutations. ``sampling_variance`` is
    its variance over samples of as many ``draws``; it is unbiased and can be negative, and NaN for a single draw.
    ``effect`` and ``sign_flip_p`` are over seeds alone.
    """

    kind: Kind
    n: int
    mean: float
    error: float
    degrees: float
    low: float
    high: float
    effect: float
    p: float
    sign_flip_p: float
    smallest_p: float
    draws: int
    seed_variance: float
    sampling_variance: float

    def draws_needed(self, half_width: float, possible: int) -> int | None:
        """Return the number of draws with an interval of at most ± ``half_width``; None if seeds alone exceed it.

        Args:
            half_width: Half the width of the 95 % interval.
            possible: The number of possible draws, an upper limit.
        """
        rest = half_width**2 - (t_quantile(self.n - 1) ** 2 * self.seed_variance)
        if not rest > 0:
            return None
        variance = self.draws * max(0.0, self.sampling_variance)
        count = 2
        while count < possible and t_quantile(count - 1) ** 2 * variance / count > rest:
            count += max(1, count // 50)
        return min(count, possible)


def sampled_difference(
    permutations: Sequence[Sequence[str]], changes: ArrayLike, possible: int, scale: float | None = None
) -> SampledDifference:
    """Test the mean of a change over permutations and seeds against zero.

    The interval is that of `headtohead.statistics.variance.CrossedEstimate`. The variance over samples has the factor
    ``1 - evaluated / possible`` of sampling without replacement, so that it is 0 if all permutations are evaluated.

    Args:
        permutations: The choices in the order in which each permutation applies them.
        changes: The change by permutation and seed ``[permutation, seed]``.
        possible: The number of all permutations.
        scale: Largest absolute score, for recognising rounding errors.
    """
    x = np.asarray(changes, dtype=np.float64)
    over_seeds = paired_differences(x.mean(axis=0), scale=scale)
    values = _by_draw(permutations, x)
    draws = len(values)
    seed_variance = over_seeds.sd**2 / over_seeds.n if over_seeds.n else math.nan
    if len(x) == possible or over_seeds.n < 2:
        sampling = 0.0
    elif draws < 2:
        sampling = math.nan
    else:
        sampling = crossed(values.T).sentence_variance * (1 - len(x) / possible)
        sampling = 0.0 if abs(sampling) <= 1e-20 * float((x**2).max()) else sampling
    kind, error, degrees, low, high, p = _test(over_seeds, draws, seed_variance, sampling)
    return SampledDifference(
        kind=kind,
        n=over_seeds.n,
        mean=over_seeds.mean,
        error=error,
        degrees=degrees,
        low=low,
        high=high,
        effect=over_seeds.effect,
        p=p,
        sign_flip_p=over_seeds.sign_flip_p,
        smallest_p=over_seeds.smallest_p,
        draws=draws,
        seed_variance=seed_variance,
        sampling_variance=sampling,
    )


def _test(
    over_seeds: Paired, draws: int, seed_variance: float, sampling: float
) -> tuple[Kind, float, float, float, float, float]:
    """Return kind, error, degrees of freedom, interval and p; those over seeds if permutations add no variance."""
    if math.isnan(sampling):
        return "single", math.nan, math.nan, math.nan, math.nan, math.nan
    if sampling <= 0:
        found = over_seeds
        return found.kind, found.error, found.degrees, found.low, found.high, found.p
    seeds = over_seeds.n
    estimate = CrossedEstimate(over_seeds.mean, seeds, draws, seeds * seed_variance, sampling)
    interval = estimate.interval()
    p = t_test_p(estimate.mean, estimate.error, estimate.degrees)
    return "varied", estimate.error, estimate.degrees, interval.low, interval.high, p


def _by_draw(permutations: Sequence[Sequence[str]], changes: Floats) -> Floats:
    """Return changes ``[draw, seed]`` with the mean over permutations as their mean.

    The values are linearised, because a draw without its reverse has half the weight.
    """
    members: dict[frozenset[tuple[str, ...]], list[int]] = {}
    for number, permutation in enumerate(map(tuple, permutations)):
        members.setdefault(frozenset([permutation, permutation[::-1]]), []).append(number)
    mean = changes.mean(axis=0)
    weight = len(members) / len(changes)
    return np.array([mean + weight * (changes[numbers] - mean).sum(axis=0) for numbers in members.values()])


@dataclass(frozen=True)
class PairEffect:
    """The effect that two choices have only together, beyond the sum of their single effects.

    ``p`` is adjusted by Bonferroni for the number of pairs that are compared at its step of the selection.
    """

    pair: tuple[str, str]
    mean: float
    low: float
    high: float
    p: float


def pair_effects(coalitions: Sequence[Collection[str]], scores: ArrayLike, names: Sequence[str]) -> list[PairEffect]:
    """Return the significant effects of pairs of choices, selected one after the other, most significant first.

    The score of a coalition is fitted by least squares: a constant, an effect of each applied choice, and an effect of
    each selected pair if both choices are applied. Over all coalitions, the effect of a pair is its Banzhaf
    interaction index (P. Hammer and R. Holzman, Approximations of pseudo-Boolean functions, ZOR 36, 1992). Each step
    adds the pair with the smallest p; the selection ends when that p exceeds 5 %, and then removes pairs that are no
    longer significant. The variance of an effect has two parts, as in `CrossedEstimate`: seeds, and the coalitions
    that happen to be evaluated, from the lack of fit beyond the seeds' noise.

    Args:
        coalitions: The applied choices of each coalition.
        scores: ``[coalition, seed]``, at least two seeds.
        names: All choices.
    """
    y = np.asarray(scores, dtype=np.float64)
    single = np.array([[1.0, *(name in applied for name in names)] for applied in coalitions])
    columns = {
        pair: single[:, 1 + names.index(pair[0])] * single[:, 1 + names.index(pair[1])]
        for pair in itertools.combinations(names, 2)
    }
    complete = len(coalitions) == 2 ** len(names)
    selected: list[PairEffect] = []
    while True:
        basis = _basis(np.column_stack([single, *(columns[effect.pair] for effect in selected)]))
        rest = [pair for pair in columns if pair not in {effect.pair for effect in selected}]
        found = [effect for pair in rest if (effect := _pair_effect(pair, basis, columns[pair], y, complete))]
        best = min(found, key=lambda effect: effect.p, default=None)
        if best is None or best.p * len(found) > ALPHA:
            break
        selected.append(_adjusted(best, len(found)))
    final = []
    for effect in selected:
        others = _basis(np.column_stack([single, *(columns[other.pair] for other in selected if other is not effect)]))
        again = _pair_effect(effect.pair, others, columns[effect.pair], y, complete)
        if again and again.p * len(columns) <= ALPHA:
            final.append(_adjusted(again, len(columns)))
    return final


def _basis(columns: Floats) -> Floats:
    """Return an orthonormal basis of the space of the columns."""
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis: Floats = vectors[:, sizes > 1e-9 * sizes[0]]
    return basis


def _adjusted(effect: PairEffect, count: int) -> PairEffect:
    return PairEffect(effect.pair, effect.mean, effect.low, effect.high, min(1.0, count * effect.p))


def _pair_effect(pair: tuple[str, str], basis: Floats, column: Floats, y: Floats, complete: bool) -> PairEffect | None:
    """Return the effect of a pair beside the fitted basis, or None if the coalitions do not determine it."""
    own = column - basis @ (basis.T @ column)
    size = float(own @ own)
    count, seeds = y.shape
    degrees = count - basis.shape[1] - 1
    if size < 1e-9 * count or (degrees < 2 and not complete):
        return None
    weights = own / size
    by_seed = weights @ y
    residuals = y - basis @ (basis.T @ y) - np.outer(own, by_seed)
    means = residuals.mean(axis=1)
    seed_variance = float(by_seed.var(ddof=1))
    lack_of_fit = 0.0
    if not complete:
        noise = float(((residuals - means[:, None]) ** 2).sum()) / (degrees * (seeds - 1))
        lack_of_fit = (float((means**2).sum()) / degrees - noise / seeds) / size
    estimate = CrossedEstimate(float(by_seed.mean()), seeds, degrees + 1, seed_variance, lack_of_fit)
    if estimate.error <= ROUNDING * float(np.abs(y).max()):  # no noise: rounding errors only
        p = 0.0 if abs(estimate.mean) > ROUNDING * float(np.abs(y).max()) else 1.0
        return PairEffect(pair, estimate.mean, estimate.mean, estimate.mean, p)
    interval = estimate.interval()
    p = t_test_p(estimate.mean, estimate.error, estimate.degrees)
    return PairEffect(pair, estimate.mean, interval.low, interval.high, p)
