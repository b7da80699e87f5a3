"""Statistical power: the difference that a study detects, and the seeds that a difference needs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from headtohead_judge.paired_tests import ALPHA, t_quantile

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
    return _noncentrality(degrees, level) * sd / math.sqrt(n)


def seeds_needed(
    effect: float, *, level: float = ALPHA, added_degrees: float = 0.0, sides: int = 1
) -> int | None:
    """Return the smallest number of seeds that detects an effect with a power of ``POWER``; None above ``MAX_SEEDS``.

    Args:
        effect: True difference in standard deviations of the difference between two seeds.
        level: 1 minus the confidence of the interval.
        added_degrees: Degrees of freedom of the variance that other scores add.
        sides: 1 if seeds are paired; 2 if each side has its own seeds and an equal variance.
    """
    for n in range(2, MAX_SEEDS + 1):
        degrees = added_degrees + sides * (n - 1)
        if minimum_detectable_effect(1.0, n, level=level, degrees=degrees) <= abs(effect):
            return n
    return None


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
