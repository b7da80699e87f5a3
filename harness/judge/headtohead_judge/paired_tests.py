"""Paired tests, intervals, power and equivalence for few seeds; exact where possible.

All functions take arrays with an entry per seed, in the same order on both sides of a comparison.
No function uses a bootstrap: with three seeds, a percentile bootstrap interval covers 75 % instead
of 95 %. ``docs/concepts/statistics.md`` explains the methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaln, stdtr, stdtrit  # scipy.stats costs 0.8 s to import

Floats = NDArray[np.float64]
Kind = Literal["varied", "constant", "identical", "single", "none"]

CONFIDENCE = 0.95
ALPHA = 0.05
POWER = 0.8
MAX_ENUMERATED_SEEDS = 20
"""Largest number of seeds with an exact sign-flip test over all 2^n sign patterns."""
DRAWS = 100_000
"""Number of random sign patterns, from a fixed seed, for more seeds."""
MAX_SIGNS = 10_000_000
"""Maximum number of random signs of a test, 80 MB; with more than 100 seeds there are fewer patterns."""
MAX_SEEDS = 1000
"""Largest number of seeds that `seeds_needed` returns."""
SIGN_FLIP_SEEDS = 6
"""Smallest number of seeds at which a single sign-flip test can reach p = 0.05."""
ROUNDING = 1e-12
"""Differences with a spread below this fraction of the scores' size count as equal."""


EVERYWHERE = (-math.inf, math.inf)
"""Span of a score without bounds."""


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation and interval of a variant's scores over its seeds.

    The interval requires two seeds.
    """

    n: int
    mean: float
    sd: float
    low: float
    high: float


@dataclass(frozen=True)
class Interval:
    """An interval of level ``level``, for example 0.95."""

    level: float
    low: float
    high: float

    def __neg__(self) -> Interval:
        return Interval(self.level, -self.high, -self.low)

    @property
    def percent(self) -> str:
        """The level as text: ``98.75 %``."""
        return f"{100 * self.level:.4g} %"


@dataclass(frozen=True)
class Difference:
    """The difference of two sides with its tests, paired by seed or of separate seeds.

    Attributes:
        kind: ``varied``: the differences vary. ``constant``: every seed has exactly the same
            non-zero difference, so that the interval is a point, the t-test is undefined and ``p``
            is ``sign_flip_p``. ``identical``: every difference is zero. ``single``: there is a
            single seed and no p-value. ``none``: there is no seed.
        n: Number of seeds; of separate seeds, the smaller number.
        mean: Mean difference.
        error: Standard error of the mean difference; `BlockModel.moderated` replaces it, and ``p``.
        degrees: Degrees of freedom of the t-test.
        effect: Cohen's d; of paired seeds d_z with Hedges' small-sample correction.
        p: Two-sided p of the t-test.
        paired_p: That of the paired t-test with the variance of these differences alone; NaN for separate seeds.
        sign_flip_p: Two-sided p of the sign-flip test; of separate seeds, of the permutation test.
        smallest_p: The smallest one-sided p of that test.
    """

    kind: Kind
    n: int
    mean: float
    error: float
    degrees: float
    effect: float
    p: float
    sign_flip_p: float
    smallest_p: float
    paired_p: float = math.nan

    @property
    def low(self) -> float:
        return interval(self, CONFIDENCE).low

    @property
    def high(self) -> float:
        return interval(self, CONFIDENCE).high


def summarise(values: ArrayLike, span: tuple[float, float] = EVERYWHERE) -> Summary:
    """Return count, mean, sample sd and t-interval of the scores; NaN where undefined.

    Args:
        values: Scores ``[seed]``; non-finite scores are dropped.
        span: Smallest and largest possible score. The interval is clipped to it, which loses no
            coverage, since the true mean lies within the span.
    """
    scores = np.asarray(values, dtype=np.float64)
    scores = scores[np.isfinite(scores)]
    n = len(scores)
    if n < 2:
        mean = float(scores.mean()) if n else math.nan
        return Summary(n, mean, math.nan, math.nan, math.nan)
    mean = float(scores.mean())
    sd = float(scores.std(ddof=1))
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    low = float(np.clip(mean - half, *span))
    high = float(np.clip(mean + half, *span))
    return Summary(n, mean, sd, low, high)


def paired(values: ArrayLike, against: ArrayLike) -> Difference:
    """Compare two sides with the same seeds in the same order, ``values`` minus ``against``."""
    left = np.asarray(values, dtype=np.float64)
    right = np.asarray(against, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError(f"paired scores need equal length, got {left.shape} and {right.shape}")
    scale = float(max(np.abs(left).max(initial=0.0), np.abs(right).max(initial=0.0)))
    return paired_differences(left - right, scale=scale)


def paired_differences(differences: ArrayLike, *, scale: float | None = None) -> Difference:
    """Test paired differences against zero.

    Args:
        differences: ``[seed]``, finite.
        scale: Largest absolute score, for recognising rounding errors; by default the largest
            absolute difference.
    """
    d = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(d).all():
        raise ValueError(f"differences must be finite, got {d.tolist()}")
    n = len(d)
    if scale is None:
        scale = float(np.abs(d).max(initial=0.0))
    kind = _kind(d, scale)
    mean = float(rounded(d.mean(), scale)) if n else math.nan
    if n < 2:
        return _untested(kind, n, mean)
    if kind == "identical":
        d = np.zeros(n)
        mean = 0.0
    sd = float(d.std(ddof=1)) if kind == "varied" else 0.0
    error = sd / math.sqrt(n)
    flips = sign_flip_p(d)
    p = t_test_p(mean, error, n - 1) if kind == "varied" else flips
    return Difference(
        kind=kind,
        n=n,
        mean=mean,
        error=error,
        degrees=n - 1,
        effect=_hedges(mean, sd, n),
        p=p,
        sign_flip_p=flips,
        smallest_p=0.5**n,
        paired_p=p,
    )


def _untested(kind: Kind, n: int, mean: float) -> Difference:
    """Return the difference of fewer than two seeds, which has no test."""
    nan = math.nan
    return Difference(
        kind=kind,
        n=n,
        mean=mean,
        error=nan,
        degrees=n - 1,
        effect=nan,
        p=nan,
        sign_flip_p=nan,
        smallest_p=0.5**n,
    )


def sign_flip_p(differences: ArrayLike) -> float:
    """Return the two-sided p of the sum under random signs.

    Exact, over all ``2^n`` sign patterns, up to ``MAX_ENUMERATED_SEEDS`` seeds. With more seeds, at most ``DRAWS``
    random patterns from a fixed seed and the observed pattern are counted.
    """
    d = np.asarray(differences, dtype=np.float64)
    if len(d) == 0:
        return math.nan
    observed = abs(float(d.sum()))
    threshold = observed - ROUNDING * float(np.abs(d).sum())
    if len(d) <= MAX_ENUMERATED_SEEDS:
        if threshold <= 0:
            return 1.0
        # Each sum is a sum of one half plus a sum of the other, so sorting one half is enough to count.
        half = len(d) // 2
        left = _signed_sums(d[:half])
        right = np.sort(_signed_sums(d[half:]))
        above = len(right) - np.searchsorted(right, threshold - left, side="left")
        below = np.searchsorted(right, -threshold - left, side="right")
        return float((above + below).sum() / 2 ** len(d))
    signs = _random_signs(len(d))
    hits = int((np.abs(signs @ d) >= threshold).sum())
    return (hits + 1) / (len(signs) + 1)


def _signed_sums(values: Floats) -> Floats:
    """Return the sums under all ``2^n`` sign patterns."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


@lru_cache(maxsize=1)
def _random_signs(seeds: int) -> Floats:
    """Return random sign patterns ``[draw, seed]``, the same for every contrast."""
    draws = min(DRAWS, MAX_SIGNS // seeds)
    return np.random.default_rng(20_17).choice([-1.0, 1.0], size=(draws, seeds))


def holm(p_values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return Holm's adjusted p-values and the levels at which his procedure tests each; NaN is not counted as a test.

    A rejected test has the level of its own step. Every other test has the level of the step at which the procedure
    stops.
    """
    p = np.asarray(p_values, dtype=np.float64)
    tests = int((~np.isnan(p)).sum())
    order = np.argsort(p, kind="stable")[:tests]  # NaN is last
    steps = np.arange(tests)
    adjusted = np.full(len(p), math.nan)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, (tests - steps) * p[order]))
    last_step = (adjusted <= ALPHA).sum()
    levels = np.full(len(p), math.nan)
    levels[order] = ALPHA / (tests - np.minimum(steps, last_step))
    return adjusted.tolist(), levels.tolist()


def few_seeds(seeds: int) -> str:
    """Return a note on fewer than ``SIGN_FLIP_SEEDS`` seeds."""
    return f"{seeds} seeds: a single sign-flip test requires at least {SIGN_FLIP_SEEDS} seeds to reach p = {ALPHA}"


def minimum_detectable_effect(
    sd: float, n: int, *, level: float = ALPHA, degrees: float | None = None
) -> float:
    """Return the true difference that a t-test of paired differences detects with a power of ``POWER``.

    Args:
        sd: Standard deviation of the paired differences.
        n: Number of seeds; the result is NaN for fewer than two.
        level: Level of the test; for the first step of Holm's procedure ``ALPHA`` divided by the number of contrasts.
        degrees: Degrees of freedom of the variance; default: those of the paired t-test, ``n - 1``.
    """
    if n < 2 or not math.isfinite(sd):
        return math.nan
    if degrees is None:
        degrees = n - 1
    return _noncentrality(degrees, level) * sd / math.sqrt(n)


def seeds_needed(
    effect: float, *, level: float = ALPHA, added_degrees: float = 0.0, sides: int = 1
) -> int | None:
    """Return the smallest number of seeds that detects an effect with a power of ``POWER``; None above ``MAX_SEEDS``.

    Args:
        effect: True difference in standard deviations of the difference between two seeds.
        level: Level of the two-sided t-test.
        added_degrees: Degrees of freedom of the variance that other scores add.
        sides: 1 if seeds are paired; 2 if each side has its own seeds and an equal variance.
    """
    for n in range(2, MAX_SEEDS + 1):
        degrees = added_degrees + sides * (n - 1)
        if minimum_detectable_effect(1.0, n, level=level, degrees=degrees) <= abs(effect):
            return n
    return None


def equivalence_p(result: Difference, margin: float) -> float:
    """Return the p of two one-sided tests of a difference within ``margin``; NaN for a single seed."""
    if result.n < 2:
        return math.nan
    if result.kind != "varied":
        return result.smallest_p if rounded(margin - abs(result.mean), margin) > 0 else 1.0
    above = float(stdtr(result.degrees, -(result.mean + margin) / result.error))
    below = float(stdtr(result.degrees, (result.mean - margin) / result.error))
    return max(above, below)


def one_sided_p(differences: ArrayLike, threshold: float, scale: float) -> Floats:
    """Return the p of one-sided t-tests that mean differences exceed ``threshold``.

    If all seeds differ by the same amount, the t-test is undefined and the sign-flip p replaces it. With fewer than two
    seeds p is 1.

    Args:
        differences: ``[..., seed]``; NaN for a seed that does not count.
        threshold: The tested mean.
        scale: Largest absolute score, for recognising rounding errors.
    """
    d = np.asarray(differences, dtype=np.float64)
    n = np.isfinite(d).sum(axis=-1)
    d = np.where((n > 1)[..., None], d, 0.0)
    excess = rounded(np.nanmean(d, axis=-1) - threshold, scale)
    is_varied = np.nanmax(d, axis=-1) - np.nanmin(d, axis=-1) > ROUNDING * scale
    sd = np.where(is_varied, np.nanstd(d, axis=-1, ddof=1), 1.0)
    error = sd / np.sqrt(np.maximum(n, 1))
    of_t_test = stdtr(n - 1, -excess / error)
    of_sign_flips = np.where(excess > 0, 0.5**n, 1.0)
    p: Floats = np.where(is_varied, of_t_test, of_sign_flips)
    return np.where(n > 1, p, 1.0)


def interval(result: Difference, confidence: float) -> Interval:
    """Return the t-interval of a difference at another level; NaN for a single seed."""
    if result.n < 2:
        return Interval(confidence, math.nan, math.nan)
    half = t_quantile(result.degrees, confidence) * result.error
    return Interval(confidence, result.mean - half, result.mean + half)


def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Return the half width of a t-interval in standard errors."""
    return float(stdtrit(degrees, (1 + confidence) / 2))


def t_test_p(mean: float, error: float, degrees: float) -> float:
    """Return the two-sided p of the t-test that a mean is 0."""
    return 2 * float(stdtr(degrees, -abs(mean) / error))


def _kind(d: Floats, scale: float) -> Kind:
    if len(d) == 0:
        return "none"
    if len(d) == 1:
        return "single"
    if np.abs(d).max() <= ROUNDING * scale:
        return "identical"
    if np.ptp(d) <= ROUNDING * scale:
        return "constant"
    return "varied"


def rounded(differences: ArrayLike, scale: float) -> Floats:
    """Return the differences, with rounding errors of scores of size ``scale`` set to 0."""
    d = np.asarray(differences, dtype=np.float64)
    return np.where(np.abs(d) <= ROUNDING * scale, 0.0, d)


def _hedges(mean: float, sd: float, n: int) -> float:
    """Return mean / sd times the correction that makes it unbiased with n - 1 degrees of freedom."""
    if n < 3 or not sd > 0:
        return math.nan
    degrees = n - 1
    log_ratio = gammaln(degrees / 2) - gammaln((degrees - 1) / 2)
    correction = math.exp(log_ratio) / math.sqrt(degrees / 2)
    return correction * mean / sd


_STEP = 0.04
_NORMAL: Floats = np.arange(-8.5, 8.5, _STEP)
_DENSITY: Floats = _STEP / math.sqrt(2 * math.pi) * np.exp(-(_NORMAL**2) / 2)


@lru_cache(maxsize=4096)
def _noncentrality(degrees: float, level: float) -> float:
    """Return the noncentrality d at which P(|t| > critical) is ``POWER``.

    With t = (z + d) / sqrt(c / k), z standard normal and c chi-squared with k degrees of freedom, the power is
    E[P(c < k (z + d)^2 / critical^2)]: an integral over z, taken by the trapezoidal rule. ``scipy.special.nctdtr``
    returns NaN for a large d.
    """
    critical = t_quantile(degrees, 1 - level)
    noncentrality = critical
    for _ in range(100):  # Newton's method; the power is concave in d from the critical value on
        bound = degrees / 2 * ((_NORMAL + noncentrality) / critical) ** 2
        power = gammainc(degrees / 2, bound)
        slope = float(_DENSITY @ (_NORMAL * power))  # Stein: dE[f(z + d)] / dd = E[z f(z + d)]
        step = (POWER - float(_DENSITY @ power)) / slope
        noncentrality += step
        if abs(step) < 1e-10 * noncentrality:
            break
    return noncentrality
