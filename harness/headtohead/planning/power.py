"""Statistical power of a design: the minimum detectable effect before and after the first runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, POWER, minimum_detectable_effect
from headtohead.storage.metrics import show


@dataclass(frozen=True)
class Power:
    """Power of a family of contrasts.

    ``effect`` is the minimum detectable effect (MDE) in standard deviations of the paired difference.
    ``difference`` is the MDE of the median contrast in units of ``metric``, None until finished runs give
    its standard deviation ``sd``. With sequential seeds, all numbers are those of the last look, without the power of
    earlier looks.
    """

    family: str
    contrasts: int
    seeds: int
    effect: float
    metric: str
    sd: float | None
    difference: float | None
    is_sequential: bool = False

    @property
    def summary(self) -> str:
        """The power in one line of text."""
        tests = f"{self.contrasts} {self.family} contrast{'s' if self.contrasts != 1 else ''}"
        if self.seeds < 2:
            return f"{tests}: one seed allows no test; use at least 2 seeds, better 6"
        seeds = f"{self.seeds} seeds, at the last look," if self.is_sequential else f"{self.seeds} seeds"
        found = f"{tests}: {seeds} find differences of {self.effect:.2f} standard deviations or more"
        if self.difference is not None:
            found += f", {show(self.difference, self.metric)} for the median contrast"
        return f"{found} ({POWER:.0%} power, Holm at {ALPHA})"


def power_of(
    family: str, contrasts: int, seeds: int, metric: str, sd: float | None = None, looks: Looks | None = None
) -> Power:
    """Return the power of paired t-tests in a family of ``contrasts`` contrasts; with ``looks``, of the last look."""
    level = ALPHA / contrasts
    if looks is not None:
        seeds, level = looks.seeds[-1], looks.level(level)
    effect = minimum_detectable_effect(1.0, seeds, level=level)
    return Power(
        family=family,
        contrasts=contrasts,
        seeds=seeds,
        effect=effect,
        metric=metric,
        sd=sd,
        difference=None if sd is None else effect * sd,
        is_sequential=looks is not None,
    )


def typical_sd(contrasts: Iterable[np.ndarray]) -> float | None:
    """Return the median over contrasts of the standard deviation of their differences by seed, or None."""
    sds = [float(differences.std(ddof=1)) for differences in contrasts if len(differences) > 1]
    return statistics.median(sds) if sds else None
