"""Statistical power: the difference that a study detects, and the seeds that a difference or an equality needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from headtohead_judge.paired_tests import ALPHA, Difference, t_quantile

Floats = NDArray[np.float64]

POWER = 0.8
MAX_SEEDS = 1000
"""Largest number of seeds that `seeds_needed` and `seeds_for_equivalence` return."""


def minimum_detectable_effect(
    sd: float, n: int, *, level: float = ALPHA, degrees: float | None = None
) -> float:
    """Return the true difference whose interval excludes 0 in a fraction `POWER` of studies.

    Args:
        sd: Standard deviation of the paired differences.
        n: Number of seeds; the result is NaN for fewer than two.
        level: 1 minus the confidence of the interval; of a family of contrasts `level_of_each`.
        degrees: Degrees of freedom of the variance; default: those of the paired t-test, ``n - 1``.
    """
    if n < 2 or not math.isfinite(sd):
        return math.nan
    if degrees is None:
        degrees = n - 1
    return _noncentrality(degrees, t_quantile(degrees, 1 - level)) * sd / math.sqrt(n)


def detectable_difference(difference: Difference, level: float = ALPHA) -> float:
    """Return the true difference that a study with the same variances detects with a power of `POWER`.

    The interval has the variance of all sources; its half width varies as that of a single source with the degrees of
    freedom of Satterthwaite (1946).

    Args:
        difference: The difference of the study; the result is NaN if it does not vary.
        level: 1 minus the confidence of the interval; of a family of contrasts `level_of_each`.
    """
    squared_half_width = 0.0
    squares = 0.0
    for source in difference.sources:
        part = source.variance * t_quantile(source.degrees, 1 - level) ** 2
        squared_half_width += part
        squares += part**2 / source.degrees
    if not squares:
        return math.nan
    degrees = squared_half_width**2 / squares
    critical = math.sqrt(squared_half_width) / difference.error
    return _noncentrality(degrees, critical) * difference.error


def seeds_needed(
    effect: float, *, level: float = ALPHA, added_degrees: float = 0.0, sides: int = 1
) -> int | None:
    """Return the smallest number of seeds that detects an effect with a power of `POWER`; None above `MAX_SEEDS`.

    Args:
        effect: True difference in standard deviations of the difference between two seeds.
        level: 1 minus the confidence of the interval.
        added_degrees: Degrees of freedom of the variance that other scores add.
        sides: 1 if seeds are paired; 2 if each side has its own seeds and an equal variance.
    """

    def is_enough(n: int) -> bool:
        degrees = added_degrees + sides * (n - 1)
        return minimum_detectable_effect(1.0, n, level=level, degrees=degrees) <= abs(effect)

    return fewest_seeds(is_enough)


def seeds_for_equivalence(
    margin: float, *, level: float = ALPHA, added_degrees: float = 0.0, sides: float = 1
) -> int | None:
    """Return the smallest number of seeds that shows equal variants equivalent with a power of `POWER`.

    None above `MAX_SEEDS`. Without a true difference, the interval then lies inside the margin in this fraction of
    studies.

    Args:
        margin: The margin in standard deviations of the difference between two seeds.
        level: 1 minus the confidence of the interval.
        added_degrees: Degrees of freedom of the variance that other scores add.
        sides: 1 if seeds are paired; if each side has its own seeds, from 1 to 2, the larger the more equal their
            variances are.
    """

    def is_enough(n: int) -> bool:
        degrees = added_degrees + sides * (n - 1)
        return equivalence_power(margin, n, level=level, degrees=degrees) >= POWER

    return fewest_seeds(is_enough)


def fewest_seeds(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number of seeds, from 2 to `MAX_SEEDS`, that is enough; None if none is."""
    return next((n for n in range(2, MAX_SEEDS + 1) if is_enough(n)), None)


def equivalence_power(margin: float, n: int, *, level: float, degrees: float) -> float:
    """Return how often the interval of two equal variants lies inside the margin.

    With z standard normal and c chi-squared with k degrees of freedom, it does if |z| + critical sqrt(c / k) is below
    the margin in standard errors.

    Args:
        margin: The margin in standard deviations of the difference between two seeds.
        n: Number of seeds, at least two.
        level: 1 minus the confidence of the interval.
        degrees: Degrees of freedom of the variance.
    """
    rest = np.maximum(margin * math.sqrt(n) - np.abs(_NORMAL), 0.0)
    bound = degrees / 2 * (rest / t_quantile(degrees, 1 - level)) ** 2
    return float(_DENSITY @ scipy.special.gammainc(degrees / 2, bound))


_STEP = 0.04
_NORMAL: Floats = np.arange(-8.5, 8.5, _STEP)
_DENSITY: Floats = _STEP / math.sqrt(2 * math.pi) * np.exp(-(_NORMAL**2) / 2)


@lru_cache(maxsize=4096)
def _noncentrality(degrees: float, critical: float) -> float:
    """Return the noncentrality d at which P(|t| > critical) is `POWER`.

    With t = (z + d) / sqrt(c / k), z standard normal and c chi-squared with k degrees of freedom, the power is
    E[P(c < k (z + d)^2 / critical^2)]: an integral over z, taken by the trapezoidal rule. ``scipy.special.nctdtr``
    returns NaN for a large d.
    """
    noncentrality = critical
    for _ in range(100):  # Newton's method; the power is concave in d from the critical value on
        bound = degrees / 2 * ((_NORMAL + noncentrality) / critical) ** 2
        power = scipy.special.gammainc(degrees / 2, bound)
        slope = float(_DENSITY @ (_NORMAL * power))  # Stein: dE[f(z + d)] / dd = E[z f(z + d)]
        step = (POWER - float(_DENSITY @ power)) / slope
        noncentrality += step
        if abs(step) < 1e-10 * noncentrality:
            break
    return noncentrality
