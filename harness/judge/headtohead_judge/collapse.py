"""Runs that collapsed: a rule that names them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike

DEVIATIONS, LOG_DEVIATIONS = 25.0, 10.0
"""Distance of a collapsed run from its variant's median, in median absolute deviations of the loss and of its log."""
ABOVE_OTHERS = 1.1
"""Smallest ratio of the loss of a collapsed run to the worst loss of another variant."""
FULL_SAMPLE = 6
"""With n seeds, fewer than this, both distances are multiplied by this number over n."""

SENSITIVITY = (
    "with six to twelve seeds and losses of 4.5 times the others, the rule names 91 to 99 % of the collapsed runs if "
    "10 % of a variant's runs collapse, 52 to 75 % if 30 % do, and 18 to 25 % if half of them do; with three seeds "
    "53 %, 33 % and 17 %"
)
"""How many collapsed runs the rule finds in simulated studies."""


def collapsed(losses: Sequence[ArrayLike]) -> list[list[bool]]:
    """Return, of each variant's runs, which collapsed, from final validation losses ``[variant][seed]``.

    A run collapsed if

    - its loss is further above its variant's median than `DEVIATIONS` median absolute deviations, and its log than
      `LOG_DEVIATIONS`; the deviations are those of its variant or of all runs (the larger ones), and
    - its loss is more than `ABOVE_OTHERS` times that of every other variant's run that is not as far from its own
      median.

    With fewer than `FULL_SAMPLE` seeds, the distances are greater. The rule flags at most 1 % of healthy runs with
    normal, heavy-tailed, lognormal or bounded losses (``benchmarks/simulation.py``). `SENSITIVITY` states how many
    collapsed runs it flags: where many runs of a variant collapse, their losses are its median. Without a second
    variant, no run collapsed; a run without a finite loss has diverged instead.
    """
    values = []
    logs = []
    for losses_of_variant in losses:
        positive = np.maximum(
            np.asarray(losses_of_variant, dtype=np.float64), np.finfo(np.float64).tiny
        )
        values.append(positive)
        logs.append(np.log(positive))
    limits = []
    log_limits = _limits(logs, LOG_DEVIATIONS)
    for limit, log_limit in zip(_limits(values, DEVIATIONS), log_limits, strict=True):
        limits.append(max(limit, math.exp(min(log_limit, 700.0))))
    worst = []
    for row, limit in zip(values, limits, strict=True):
        worst.append(float(row[row <= limit].max(initial=-math.inf)))
    flags = []
    for index, row in enumerate(values):
        worst_of_others = max(worst[:index] + worst[index + 1 :], default=math.inf)
        is_collapsed = (row > limits[index]) & (row > ABOVE_OTHERS * worst_of_others)
        flags.append([bool(flag) for flag in is_collapsed])
    return flags


def exact_interval(count: int, runs: int, level: float) -> tuple[float, float]:
    """Return the exact interval of a rate of which ``count`` of ``runs`` were seen (Clopper and Pearson, 1934).

    Args:
        count: At most ``runs``.
        runs: At least 1.
        level: The confidence level, below 1.
    """
    tail = (1 - level) / 2
    low = 0.0
    high = 1.0
    if count > 0:
        low = float(scipy.special.betaincinv(count, runs - count + 1, tail))
    if count < runs:
        high = float(scipy.special.betaincinv(count + 1, runs - count, 1 - tail))
    return low, high


def fisher_p(count: int, runs: int, other_count: int, other_runs: int) -> float:
    """Return the two-sided p-value of Fisher's exact test of two rates; 1 if nothing was seen on either side."""
    if count == other_count == 0:
        return 1.0
    from scipy.stats import fisher_exact  # half a second, for studies with collapsed runs only

    table = [[count, runs - count], [other_count, other_runs - other_count]]
    return float(fisher_exact(table).pvalue)


def _limits(samples: Sequence[np.ndarray], most: float) -> list[float]:
    """Return the median of each sample plus ``most`` median absolute deviations."""
    medians = [float(np.median(sample)) for sample in samples]
    deviations = []
    for sample, median in zip(samples, medians, strict=True):
        deviations.append(np.abs(sample - median))
    common_deviation = float(np.median(np.concatenate(deviations)))
    limits = []
    for median, deviations_of_sample in zip(medians, deviations, strict=True):
        deviation = max(float(np.median(deviations_of_sample)), common_deviation)
        factor = max(FULL_SAMPLE / len(deviations_of_sample), 1)
        limits.append(median + most * factor * deviation)
    return limits
