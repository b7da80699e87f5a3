"""Runs that collapsed: a rule that names them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

DEVIATIONS, LOG_DEVIATIONS = 25.0, 10.0
"""Distance of a collapsed run from its variant's median, in median absolute deviations of the loss and of its log."""
FULL_SAMPLE = 6
"""With n seeds, fewer than this, both distances are multiplied by this number over n."""


def collapsed(losses: Sequence[ArrayLike]) -> list[list[bool]]:
    """Return, of each variant's runs, which collapsed, from final validation losses ``[variant][seed]``.

    A run collapsed if its loss is not finite, or if

    - its loss is further above its variant's median than `DEVIATIONS` median absolute deviations, and its log than
      `LOG_DEVIATIONS`; the deviations are those of its variant or of all runs (the larger ones), and
    - its loss is above that of every other variant's run that is not as far from its own median.

    With fewer than `FULL_SAMPLE` seeds, the distances are greater. The rule flags at most 1 % of healthy runs with
    normal, heavy-tailed, lognormal or bounded losses (``benchmarks/simulation.py``). Without a second variant, only a
    run whose loss is not finite collapsed.
    """
    values = [np.asarray(own, dtype=np.float64) for own in losses]
    trained = [np.maximum(own[np.isfinite(own)], np.finfo(np.float64).tiny) for own in values]
    logs = [np.log(own) for own in trained]
    limits = [
        max(limit, math.exp(min(log_limit, 700.0)))
        for limit, log_limit in zip(_limits(trained, DEVIATIONS), _limits(logs, LOG_DEVIATIONS), strict=True)
    ]
    worst = [float(own[own <= limit].max(initial=-math.inf)) for own, limit in zip(trained, limits, strict=True)]
    result = []
    for index, own in enumerate(values):
        others = max(worst[:index] + worst[index + 1 :], default=math.inf)
        result.append([bool(found) for found in ~np.isfinite(own) | ((own > limits[index]) & (own > others))])
    return result


def _limits(samples: Sequence[np.ndarray], most: float) -> list[float]:
    """Return the median of each sample plus ``most`` median absolute deviations; NaN for an empty sample."""
    medians = [float(np.median(own)) if len(own) else math.nan for own in samples]
    deviations = [np.abs(own - median) for own, median in zip(samples, medians, strict=True)]
    common = float(np.median(np.concatenate(deviations))) if any(map(len, deviations)) else math.nan
    return [
        median + most * max(FULL_SAMPLE / len(own), 1) * max(float(np.median(own)), common) if len(own) else math.nan
        for median, own in zip(medians, deviations, strict=True)
    ]
