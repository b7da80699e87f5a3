"""Runs that collapsed: a rule that names them, the rate of collapse with its exact interval and test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, gammaln

from headtohead.statistics.paired_tests import CONFIDENCE, Interval

DEVIATIONS = 20.0
"""Distance of a collapsed run from its variant's median, in median absolute deviations of the log of the loss."""


def collapsed(losses: Sequence[ArrayLike]) -> list[list[bool]]:
    """Return, of each variant's runs, which collapsed.

    A run collapsed if its loss is not finite, or if

    - the log of its loss is further above its variant's median than `DEVIATIONS` median absolute deviations, those
      of its variant or of all runs (the larger ones), and
    - its loss is above that of every other variant's run that is not as far from its own median.

    From six seeds on, the rule flags at most 1 % of healthy runs with normal, heavy-tailed, lognormal or bounded log
    losses (``benchmarks/simulation.py``). Without a second variant, only the first condition applies.

    Args:
        losses: Final validation losses ``[variant][seed]``.
    """
    values = [np.asarray(own, dtype=np.float64) for own in losses]
    hopeless = [~np.isfinite(own) for own in values]
    logs = [np.log(np.maximum(own, np.finfo(np.float64).tiny)) for own in values]
    trained = [own[~bad] for own, bad in zip(logs, hopeless, strict=True)]
    medians = [float(np.median(own)) if len(own) else math.nan for own in trained]
    deviations = [np.abs(own - median) for own, median in zip(trained, medians, strict=True)]
    common = float(np.median(np.concatenate(deviations))) if any(map(len, deviations)) else math.nan
    limits = [
        median + DEVIATIONS * max(float(np.median(own)), common) if len(own) else math.nan
        for median, own in zip(medians, deviations, strict=True)
    ]
    worst = [
        float(own[own <= limit].max()) if len(own) else -math.inf for own, limit in zip(trained, limits, strict=True)
    ]
    result = []
    for index, (own, bad) in enumerate(zip(logs, hopeless, strict=True)):
        others = max(worst[:index] + worst[index + 1 :], default=math.inf)
        result.append([bool(found) for found in bad | ((own > limits[index]) & (own > others))])
    return result


def rate_interval(count: int, total: int) -> Interval:
    """Return the exact interval of a rate (Clopper and Pearson 1934) of ``count`` of ``total`` runs."""
    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return Interval(CONFIDENCE, low, high)


def rates_p(left: int, left_total: int, right: int, right_total: int) -> float:
    """Return the two-sided p of Fisher's exact test that two rates are equal."""

    def log_choose(n: int, k: np.ndarray | int) -> np.ndarray:
        result: np.ndarray = gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(np.subtract(n, k) + 1)
        return result

    both = left + right
    possible = np.arange(max(0, both - right_total), min(both, left_total) + 1)
    logs = log_choose(left_total, possible) + log_choose(right_total, both - possible)
    weights = np.exp(logs - logs.max())
    observed = weights[left - possible[0]]
    return float(weights[weights <= observed * (1 + 1e-7)].sum() / weights.sum())
