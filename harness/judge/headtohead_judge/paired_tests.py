"""Paired tests and intervals for few seeds; exact where possible.

All functions take arrays with an entry per seed, in the same order on both sides of a comparison.
No function uses a bootstrap: with three seeds, a percentile bootstrap interval covers 75 % instead
of 95 %. ``docs/concepts/statistics.md`` explains the methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import scipy  # loads scipy.special, which takes 0.2 s, at its first use; scipy.stats takes 0.8 s
from numpy.typing import ArrayLike, NDArray

from headtohead_judge.numbers import are_single

Floats = NDArray[np.float64]
Kind = Literal["varied", "constant", "identical", "single", "none"]

CONFIDENCE = 0.95
ALPHA = 0.05
MAX_ENUMERATED_SEEDS = 20
"""Largest number of seeds with an exact sign-flip test over all 2^n sign patterns."""
MAX_LISTED_SEEDS = 12
"""Largest number of seeds whose sign patterns are kept as a matrix."""
DRAWS = 100_000
"""Number of random sign patterns, from a fixed seed, for more seeds."""
MAX_SIGNS = 10_000_000
"""Maximum number of random signs of a test, 80 MB; with more than 100 seeds there are fewer patterns."""
SIGN_FLIP_SEEDS = 6
"""Smallest number of seeds at which a single sign-flip test can reach p = 0.05."""
ROUNDING = 1e-12
"""Differences with a spread below this fraction of the largest score count as equal."""

SINGLE_ROUNDING = 1e-6
"""The same for scores that were computed in single precision (float32)."""


SEEDS = "training seeds"
EXAMPLES = "examples"
SELECTION = "tuning"
DECIMALS = "decimals of the scores"
"""Names of sources of variance."""
SMALLEST_P = 1e-300
"""Smallest p-value of a difference with several sources of variance."""

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
    """An interval from ``low`` to ``high``; both are NaN where it is not defined."""

    low: float
    high: float

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)


@dataclass(frozen=True)
class Source:
    """A source of variance of a mean difference.

    Attributes:
        name: The source as tables name it: `SEEDS`, `EXAMPLES`, `SELECTION` or `DECIMALS`.
        variance: The variance that it adds to the mean difference; at least 0.
        degrees: Degrees of freedom of ``variance``; positive, not always whole.
    """

    name: str
    variance: float
    degrees: float

    def half_width(self, p: float) -> float:
        """Return the half width of the interval with the confidence 1 - ``p``, if this is the only source."""
        if not self.variance:  # 0 times an infinite quantile is NaN
            return 0.0
        return math.sqrt(self.variance) * -float(scipy.special.stdtrit(self.degrees, p / 2))

    def p_of_zero(self, mean: float) -> float:
        """Return the p at which the half width is the size of a mean."""
        return t_test_p(mean, math.sqrt(self.variance), self.degrees)


@dataclass(frozen=True)
class Decimals(Source):
    """The rounding of the scores of two sides: the error of the difference has a triangular distribution.

    It is at most `rounding_bias` of each side, and further seeds do not make it smaller.
    """

    @classmethod
    def of(cls, largest: float) -> Decimals:
        """Return the source of a difference whose error is at most ``largest``."""
        return cls(DECIMALS, largest**2 / 6, math.inf)

    @property
    def largest(self) -> float:
        """The largest error."""
        return math.sqrt(6 * self.variance)

    def half_width(self, p: float) -> float:
        """Return the half width of the interval with the confidence 1 - ``p``."""
        return self.largest * (1 - math.sqrt(p))

    def p_of_zero(self, mean: float) -> float:
        """Return the probability of an error of at least the size of a mean."""
        return max(0.0, 1 - abs(mean) / self.largest) ** 2


def rounding_bias(variance: float, decimals: int) -> float:
    """Return a bound on the error that the rounding to some decimals leaves in the mean of many values.

    With the step h of the last decimal and the standard deviation s before rounding, it is h/2 exp(-2 pi² s²/h²): half
    a step without variation, and less than a hundredth of a step from s = h/2 on, as values are rounded up and down
    then. The error of normal values is the Fourier series of the sawtooth with its k-th term times exp(-2 pi² k²
    s²/h²), and the first amplitude is h/pi (B. Widrow and I. Kollár, Quantization Noise, 2008). s² is estimated as the
    variance of the rounded values minus that of the rounding errors, h²/12.

    Args:
        variance: Sample variance of the rounded values.
        decimals: The number of decimals that they are rounded to.
    """
    step = 10.0**-decimals
    squared_steps = max(0.0, variance / step**2 - 1 / 12)
    return step / 2 * math.exp(-2 * math.pi**2 * squared_steps)


@dataclass(frozen=True)
class Difference:
    """The difference of two sides with its sources of variance, paired by seed or of separate seeds.

    Attributes:
        kind: ``varied``: the differences vary over seeds. ``constant``: every seed has exactly the same non-zero
            difference, so that the variance over seeds is 0 and the t-test is undefined. ``identical``: every
            difference is zero. ``single``: there is a single seed and no p-value. ``none``: there is no seed.
        n: Number of seeds; of separate seeds, the smaller number.
        mean: Mean difference; NaN without a seed.
        sources: The sources of variance of ``mean``, the training seeds first; empty with fewer than two seeds.
        effect: Cohen's d; of paired seeds d_z with Hedges' small-sample correction; NaN where undefined.
        sign_flip_p: Two-sided p of the sign-flip test; of separate seeds, of the permutation test.
        paired_p: Two-sided p of the paired t-test with the variance of these differences alone, or ``sign_flip_p`` if
            they do not vary; NaN for separate seeds.
    """

    kind: Kind
    n: int
    mean: float
    sources: tuple[Source, ...]
    effect: float
    sign_flip_p: float
    paired_p: float = math.nan

    @property
    def error(self) -> float:
        """The standard error of ``mean``: the root of the sum of the variances; NaN with fewer than two seeds."""
        if not self.sources:
            return math.nan
        return math.sqrt(sum(source.variance for source in self.sources))

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance over seeds; NaN with fewer than two seeds."""
        return self.sources[0].degrees if self.sources else math.nan

    @cached_property
    def p(self) -> float:
        """Two-sided p that the mean is 0: 1 minus the level at which the `interval` ends at 0.

        If the differences do not vary over seeds, it is the larger of this p and ``sign_flip_p``. NaN with fewer than
        two seeds.
        """
        if not self.sources:
            return math.nan
        p = _p_of_zero(self.mean, self.sources)
        return p if self.kind == "varied" else max(p, self.sign_flip_p)

    def with_source(self, source: Source) -> Difference:
        """Return the difference with another source of variance; without a source, it stays as it is."""
        if not self.sources:
            return self
        return replace(self, sources=(*self.sources, source))

    @property
    def decimals_error(self) -> float:
        """The largest error of ``mean`` due to the decimals of the scores; 0 without the source `DECIMALS`."""
        return math.fsum(source.largest for source in self.sources if isinstance(source, Decimals))

    def with_decimals_error(self, largest: float) -> Difference:
        """Return the difference with the source `DECIMALS`; without an error or a source, it stays as it is."""
        return self.with_source(Decimals.of(largest)) if largest else self

    def without_decimals(self) -> Difference:
        """Return the difference without the source `DECIMALS`."""
        sources = [source for source in self.sources if source.name != DECIMALS]
        return replace(self, sources=tuple(sources))

    def with_seed_variance(self, variance: float, degrees: float) -> Difference:
        """Return the difference with another variance of its mean over seeds."""
        seeds = Source(SEEDS, variance, degrees)
        return replace(self, sources=(seeds, *self.sources[1:]))


def summarise(values: ArrayLike, span: tuple[float, float] = EVERYWHERE) -> Summary:
    """Return count, mean, sample sd and t-interval of the scores; NaN where undefined.

    Args:
        values: Scores ``[seed]``; non-finite scores are dropped.
        span: Smallest and largest possible score. The interval is clipped to it, which loses no
            coverage, since the true mean lies within the span.
    """
    scores = [
        score for score in np.asarray(values, dtype=np.float64).tolist() if math.isfinite(score)
    ]
    n = len(scores)
    if n < 2:
        mean = scores[0] if n else math.nan
        return Summary(n, mean, math.nan, math.nan, math.nan)
    mean, sd = _moments(scores)
    half = t_quantile(n - 1) * sd / math.sqrt(n)
    lowest, highest = span
    low = min(max(mean - half, lowest), highest)
    high = min(max(mean + half, lowest), highest)
    return Summary(n, mean, sd, low, high)


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample standard deviation of at least two values."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum([(value - mean) ** 2 for value in values])
    return mean, math.sqrt(squares / (len(values) - 1))


def rounding_error(scores: ArrayLike) -> float:
    """Return the size up to which differences of scores are rounding errors of floating-point arithmetic.

    NaN and infinite scores are ignored.
    """
    x = np.asarray(scores, dtype=np.float64)
    x = x[np.isfinite(x)]
    fraction = SINGLE_ROUNDING if are_single(x) else ROUNDING
    return fraction * float(np.abs(x).max(initial=0.0))


def paired(values: ArrayLike, against: ArrayLike) -> Difference:
    """Compare two sides with the same seeds in the same order, ``values`` minus ``against``.

    Args:
        values: Scores ``[seed]``, finite.
        against: Scores ``[seed]`` of the other side, finite.

    Raises:
        ValueError: If the sides have different numbers of seeds, or a score is not finite.
    """
    left = np.asarray(values, dtype=np.float64)
    right = np.asarray(against, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1:
        raise ValueError(f"paired scores need equal length, got {left.shape} and {right.shape}")
    return paired_differences(left - right, rounding=rounding_error([left, right]))


def paired_differences(differences: ArrayLike, *, rounding: float | None = None) -> Difference:
    """Test paired differences against zero.

    Args:
        differences: ``[seed]``, finite.
        rounding: The `rounding_error` of the scores; by default `ROUNDING` of the largest absolute
            difference.

    Raises:
        ValueError: If a difference is not finite.
    """
    d = np.asarray(differences, dtype=np.float64).tolist()
    if not all(map(math.isfinite, d)):
        raise ValueError(f"differences must be finite, got {d}")
    n = len(d)
    if rounding is None:
        rounding = ROUNDING * max(map(abs, d), default=0.0)
    kind = _kind(d, rounding)
    if n == 0:
        return _untested(kind, 0, math.nan)
    if kind == "identical":
        d = [0.0] * n
    mean = math.fsum(d) / n
    if abs(mean) <= rounding:
        mean = 0.0
    if n == 1:
        return _untested(kind, 1, mean)
    _, sd = _moments(d)
    if kind != "varied":
        sd = 0.0
    error = sd / math.sqrt(n)
    flips = sign_flip_p(d, rounding=rounding)
    p = t_test_p(mean, error, n - 1) if kind == "varied" else flips
    return Difference(
        kind=kind,
        n=n,
        mean=mean,
        sources=(Source(SEEDS, error**2, n - 1),),
        effect=_hedges(mean, sd, n),
        sign_flip_p=flips,
        paired_p=p,
    )


def _untested(kind: Kind, n: int, mean: float) -> Difference:
    """Return the difference of fewer than two seeds, which has no test."""
    return Difference(kind, n, mean, (), math.nan, math.nan)


def sign_flip_p(differences: ArrayLike, *, rounding: float = 0.0) -> float:
    """Return the two-sided p of the sum of finite differences ``[seed]`` under random signs; NaN without a seed.

    Exact, over all ``2^n`` sign patterns, up to ``MAX_ENUMERATED_SEEDS`` seeds. With more seeds, at most ``DRAWS``
    random patterns from a fixed seed and the observed pattern are counted. Sums whose distance is within ``rounding``
    per seed count as equal.
    """
    d = np.asarray(differences, dtype=np.float64)
    if len(d) == 0:
        return math.nan
    observed = abs(float(d.sum()))
    threshold = observed - max(ROUNDING * float(np.abs(d).sum()), rounding * len(d))
    if threshold <= 0:
        return 1.0
    if len(d) <= MAX_LISTED_SEEDS:
        sums = _half_of_signs(len(d)) @ d  # the other half has the same sizes
        return float((np.abs(sums) >= threshold).mean())
    if len(d) <= MAX_ENUMERATED_SEEDS:
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


@lru_cache(maxsize=MAX_LISTED_SEEDS)
def _half_of_signs(seeds: int) -> Floats:
    """Return the sign patterns ``[pattern, seed]`` with a positive first sign."""
    patterns = np.arange(2 ** (seeds - 1))[:, None]
    bits = patterns >> np.arange(seeds)[::-1] & 1
    signs: Floats = np.where(bits, -1.0, 1.0)
    return signs


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


def level_of_each(tests: int) -> float:
    """Return the level of each of some tests so that all together have the level `ALPHA` (Z. Sidak, JASA 62, 1967).

    Simultaneous intervals have the coverage 1 minus this level. Without a test, it is `ALPHA`.
    """
    return float(-np.expm1(np.log1p(-ALPHA) / max(tests, 1)))


def adjusted_for(tests: int, p: float) -> float:
    """Return the p-value of a test among this number of tests, corrected as by `level_of_each`; NaN stays NaN."""
    if p >= 1:
        return 1.0
    return float(-np.expm1(tests * np.log1p(-p)))


def few_seeds(seeds: int) -> str:
    """Return a note on fewer than `SIGN_FLIP_SEEDS` seeds."""
    return (
        f"{seeds} seeds: with fewer than {SIGN_FLIP_SEEDS}, more than 5 % of the verdicts can be wrong, and a "
        "difference that is the same in every seed has none"
    )


def interval(difference: Difference, confidence: float) -> Interval:
    """Return the interval of a difference at a level of confidence, such as 0.95; NaN with fewer than two seeds.

    The squared half width is the sum of the squared half widths of the t-intervals of the sources (F. A. Graybill and
    C.-M. Wang, Confidence intervals on nonnegative linear combinations of variances, JASA 75, 1980).
    """
    if not difference.sources:
        return Interval(math.nan, math.nan)
    half = _half_width(difference.sources, 1 - confidence)
    return Interval(difference.mean - half, difference.mean + half)


def _half_width(sources: Sequence[Source], p: float) -> float:
    """Return the half width of the interval with the confidence 1 - ``p``."""
    return math.sqrt(sum(source.half_width(p) ** 2 for source in sources))


def _p_of_zero(mean: float, sources: Sequence[Source]) -> float:
    """Return the p at which the half width is the size of the mean, by bisection if there are several sources."""
    varied = [source for source in sources if source.variance > 0]
    if not varied:
        return 0.0 if mean else 1.0
    if len(varied) == 1:
        return varied[0].p_of_zero(mean)
    # Each source alone has a smaller half width than all of them. Where each has its share of the mean, they have it.
    low = max(source.p_of_zero(mean) for source in varied)
    error = math.sqrt(sum(source.variance for source in varied))
    high = max(source.p_of_zero(mean * math.sqrt(source.variance) / error) for source in varied)
    low = max(low, SMALLEST_P)
    while high > low * (1 + 1e-12):
        middle = math.sqrt(low) * math.sqrt(high)
        if _half_width(varied, middle) > abs(mean):
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Return the half width of a t-interval in standard errors."""
    return float(scipy.special.stdtrit(degrees, (1 + confidence) / 2))


def t_test_p(mean: float, error: float, degrees: float) -> float:
    """Return the two-sided p of the t-test that a mean is 0."""
    return 2 * float(scipy.special.stdtr(degrees, -abs(mean) / error))


def _kind(d: Sequence[float], rounding: float) -> Kind:
    if len(d) == 0:
        return "none"
    if len(d) == 1:
        return "single"
    if max(map(abs, d)) <= rounding:
        return "identical"
    if max(d) - min(d) <= rounding:
        return "constant"
    return "varied"


def _hedges(mean: float, sd: float, n: int) -> float:
    """Return mean / sd times the correction that makes it unbiased with n - 1 degrees of freedom."""
    if n < 3 or not sd > 0:
        return math.nan
    degrees = n - 1
    log_ratio = math.lgamma(degrees / 2) - math.lgamma((degrees - 1) / 2)
    correction = math.exp(log_ratio) / math.sqrt(degrees / 2)
    return correction * mean / sd
