"""Runs that collapsed: a rule that names them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

DEVIATIONS, LOG_DEVIATIONS = 25.0, 10.0
"""Distance of a collapsed run from its variant's median, in median absolute deviations of the loss and of its log."""
ABOVE_OTHERS = 1.1
"""Smallest ratio of the loss of a collapsed run to the worst loss of another variant."""
FULL_SAMPLE = 6
"""With n seeds, fewer than this, both distances are multiplied by this number over n."""


def collapsed(losses: Sequence[ArrayLike]) -> list[list[bool]]:
    """Return, of each variant's runs, which collapsed, from final validation losses ``[variant][seed]``.

    A run collapsed if

    - its loss is further above its variant's median than `DEVIATIONS` median absolute deviations, and its log than
      `LOG_DEVIATIONS`; the deviations are those of its variant or of all runs (the larger ones), and
    - its loss is more than `ABOVE_OTHERS` times that of every other variant's run that is not as far from its own
      median.

    With fewer than `FULL_SAMPLE` seeds, the distances are greater. The rule flags at most 1 % of healthy runs with
    normal, heavy-tailed, lognormal or bounded losses (``benchmarks/simulation.py``). Without a second variant, no run
    collapsed; a run without a finite loss has diverged instead.
    """
    values = [
        np.maximum(np.asarray(own, dtype=np.float64), np.finfo(np.float64).tiny) for own in losses
    ]
    logs = [np.log(own) for own in values]
    limits = [
        max(limit, math.exp(min(log_limit, 700.0)))
        for limit, log_limit in zip(
            _limits(values, DEVIATIONS), _limits(logs, LOG_DEVIATIONS), strict=True
        )
    ]
    worst = [
        float(own[own <= limit].max(initial=-math.inf))
        for own, limit in zip(values, limits, strict=True)
    ]
    result = []
    for index, own in enumerate(values):
        others = max(worst[:index] + worst[index + 1 :], default=math.inf)
        result.append(
            [bool(found) for found in (own > limits[index]) & (own > ABOVE_OTHERS * others)]
        )
    return result


def _limits(samples: Sequence[np.ndarray], most: float) -> list[float]:
    """Return the median of each sample plus ``most`` median absolute deviations."""
    medians = [float(np.median(own)) for own in samples]
    deviations = [np.abs(own - median) for own, median in zip(samples, medians, strict=True)]
    common = float(np.median(np.concatenate(deviations)))
    return [
        median + most * max(FULL_SAMPLE / len(own), 1) * max(float(np.median(own)), common)
        for median, own in zip(medians, deviations, strict=True)
    ]
