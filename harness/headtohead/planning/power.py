"""Statistical power of a design: the minimum detectable effect before and after the first runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headtohead.statistics.block_model import expected_degrees
from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, POWER, minimum_detectable_effect
from headtohead.storage.metrics import show


@dataclass(frozen=True)
class Power:
    """Power of the tests in a family of contrasts, of a design with ``variants`` variants of equal variance.

    ``sd`` is the median standard deviation of the contrasts' paired differences in units of ``metric``, None until runs
    are finished. With ``looks``, ``seeds`` is that of the last look, and the power of earlier looks is left out.
    """

    family: str
    contrasts: int
    seeds: int
    variants: int
    metric: str
    sd: float | None = None
    looks: Looks | None = None

    @cached_property
    def effect(self) -> float:
        """The minimum detectable effect (MDE) in standard deviations of the paired difference."""
        level = ALPHA / self.contrasts
        level = self.looks.level(level) if self.looks else level
        degrees = expected_degrees(self.variants, self.seeds)
        return minimum_detectable_effect(1.0, self.seeds, level=level, degrees=degrees)

    @property
    def difference(self) -> float | None:
        """The MDE of the median contrast in units of ``metric``."""
        return None if self.sd is None else self.effect * self.sd

    @property
    def summary(self) -> str:
        """The power in one line of text."""
        tests = f"{self.contrasts} {self.family} contrast{'s' if self.contrasts != 1 else ''}"
        if self.seeds < 2:
            return f"{tests}: one seed allows no test; use at least 2 seeds, better 6"
        seeds = f"{self.seeds} seeds, at the last look," if self.looks else f"{self.seeds} seeds"
        found = f"{tests}: {seeds} find differences of {self.effect:.2f} standard deviations or more"
        if self.difference is not None:
            found += f", {show(self.difference, self.metric)} for the median contrast"
        return f"{found} ({POWER:.0%} power, Holm at {ALPHA})"
