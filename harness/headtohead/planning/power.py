"""Statistical power of a design: the minimum detectable effect before and after the first runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headtohead.storage.contrasts import FAMILIES_IN_WORDS, FAMILY_NAMES
from headtohead.storage.metrics import counted, show
from headtohead_judge.block_model import expected_degrees
from headtohead_judge.looks import Looks
from headtohead_judge.noise import CONFIDENCE as EXPECTED_CONFIDENCE
from headtohead_judge.noise import ExpectedDeviation
from headtohead_judge.paired_tests import CONFIDENCE, level_of_each
from headtohead_judge.power import (
    MAX_SEEDS,
    POWER,
    equivalence_power,
    fewest_seeds,
    minimum_detectable_effect,
)

MAX_NAMES = 6
"""Maximum number of contrasts of a family that are named."""

HEADING = (
    "what {seeds} seeds{look} show in {power:.0f} % of studies, by simultaneous {confidence:g} % intervals over seeds "
    "alone; those of the report also have the variance of test examples, and of tuned values if there are any (sd: "
    "standard deviation of {score} over the seeds of a variant)"
)
LAST_LOOK = ", the last look,"
HEADING_OF_A_SEED = (
    "contrasts, without an interval with a single seed; use at least 2 seeds, better 6"
)

FAMILY = "{family}: {names}"
DIFFERENCE = "  a difference of {effect:.2f} sd"
MEASURED = ": {difference} for the median contrast of the finished runs"
EXPECTED = (
    ": about {difference}, because sd was {sd} in {reports} of headtohead on {data} "
    "({confidence} % interval of sd: {low} to {high})"
)
"""The MDE that the committed reports of this project suggest."""

MARGIN = "  the margin of {margin}, if sd is at most {sd:.2g}; an sd of {twice:.2g} takes {seeds}"
MARGIN_OF_RUNS = "  the margin of {margin} takes {seeds}"
EQUIVALENCE = "  equivalence to within the margin takes {seeds} if sd is {sd:.2g}"
EQUIVALENCE_OF_RUNS = "  equivalence to within the margin takes {seeds}"


@dataclass(frozen=True)
class Power:
    """Power of the intervals of a family in ``metric``, of a design with ``variants`` variants of equal variance.

    The intervals have the variance over seeds alone: that of examples and of tuned values is not known before
    training. ``expected`` is the standard deviation over seeds in reports of this project, None without enough of them.

    ``names`` are those of the tested contrasts. ``tested`` is the number of tested contrasts of the family in all
    metrics, which share the level; 0 if all are in ``metric``. ``primary`` is the primary metric. ``weight`` is the
    largest sum of squared score weights among the contrasts, 2 for two variants.
    ``sd`` is the median standard deviation of the contrasts' paired differences in units of ``metric``, None until runs
    are finished. With ``looks``, ``seeds`` is that of the last look, and the power of earlier looks is left out.
    """

    family: str
    names: Sequence[str]
    seeds: int
    variants: int
    metric: str
    primary: str = ""
    tested: int = 0
    weight: float = 2.0
    margin: float | None = None
    sd: float | None = None
    expected: ExpectedDeviation | None = None
    looks: Looks | None = None

    @property
    def contrasts(self) -> int:
        """The number of contrasts in ``metric``."""
        return len(self.names)

    @property
    def level(self) -> float:
        """1 minus the confidence of each of the simultaneous intervals of the family."""
        level = level_of_each(self.tested or self.contrasts)
        return self.looks.level(level) if self.looks else level

    @cached_property
    def effect(self) -> float:
        """The minimum detectable effect (MDE) in standard deviations of the paired difference."""
        return self._effect(self.seeds)

    def _effect(self, seeds: int) -> float:
        degrees = expected_degrees(self.variants, seeds, self.contrasts)
        return minimum_detectable_effect(1.0, seeds, level=self.level, degrees=degrees)

    @property
    def difference(self) -> float | None:
        """The MDE of the median contrast in units of ``metric``."""
        return None if self.sd is None else self.effect * self.sd

    @property
    def effect_in_runs(self) -> float:
        """The MDE in standard deviations of a run's score over seeds, which is the same unit for all families."""
        return self.effect * math.sqrt(self.weight)

    @property
    def heading(self) -> str:
        """The conditions of the power and the unit of `lines`, the same for all families of a design."""
        if self.seeds < 2:
            return HEADING_OF_A_SEED
        return HEADING.format(
            seeds=self.seeds,
            look=LAST_LOOK if self.looks else "",
            power=100 * POWER,
            confidence=100 * CONFIDENCE,
            score=self.primary or self.metric,
        )

    @property
    def lines(self) -> list[str]:
        """The family with the names of its contrasts; below it, the MDE, and which seeds the margin takes.

        With fewer than two seeds, the family only. The lines on the margin are left out without a margin.
        """
        if self.seeds < 2:
            return [FAMILY.format(family=FAMILIES_IN_WORDS[self.family], names=self._listed)]
        number = counted(self.contrasts, FAMILY_NAMES[self.family])
        if self.primary and self.primary != self.metric:
            number += f" in {self.metric}"
        lines = [FAMILY.format(family=number, names=self._listed), self._difference_line]
        if self.margin:
            lines += [self._margin_line(self.margin), self._equivalence_line(self.margin)]
        return lines

    @property
    def _difference_line(self) -> str:
        """The MDE in sd, and in units of ``metric`` if ``sd`` or ``expected`` is known."""
        line = DIFFERENCE.format(effect=self.effect_in_runs)
        if self.difference is not None:
            return line + MEASURED.format(difference=show(self.difference, self.metric))
        if self.expected is None:
            return line
        return line + EXPECTED.format(
            difference=show(self.effect_in_runs * self.expected.sd, self.metric),
            sd=show(self.expected.sd, self.metric),
            low=show(self.expected.low, self.metric),
            high=show(self.expected.high, self.metric),
            confidence=f"{100 * EXPECTED_CONFIDENCE:.0f}",
            reports=counted(self.expected.studies, "report"),
            data=self.expected.data or "other data",
        )

    @property
    def _listed(self) -> str:
        """The names of the contrasts; of more than `MAX_NAMES` + 1, the first `MAX_NAMES` and the number of others."""
        others = self.contrasts - MAX_NAMES
        if others <= 1:
            return "; ".join(self.names)
        return "; ".join([*self.names[:MAX_NAMES], f"{others} more"])

    def _margin_line(self, margin: float) -> str:
        """Return how many seeds detect a difference of the margin.

        Without a known ``sd``, the line has the largest standard deviation of a score with which the planned seeds
        suffice, and the number of seeds for twice this standard deviation.
        """
        shown_margin = show(margin, self.metric, like=margin)
        if self.sd:
            seeds = self._seeds_needed(margin / self.sd)
            return MARGIN_OF_RUNS.format(margin=shown_margin, seeds=seeds)
        largest_sd = margin / self.effect_in_runs
        return MARGIN.format(
            margin=shown_margin,
            sd=largest_sd,
            seeds=self._seeds_needed(self.effect / 2),
            twice=2 * largest_sd,
        )

    def _seeds_needed(self, effect: float) -> str:
        """Return the number of seeds that detect an effect in standard deviations of the paired difference."""
        return _seeds_text(fewest_seeds(lambda seeds: self._effect(seeds) <= effect))

    def _equivalence_line(self, margin: float) -> str:
        """Return how many seeds the equivalence of equal variants takes.

        With these seeds, the verdict is equivalent, or a difference by less than the margin, in 80 % of studies.
        Without a known ``sd``, the number is that for the largest standard deviation in `_margin_line`.
        """
        if self.sd:
            return EQUIVALENCE_OF_RUNS.format(seeds=self._seeds_for_equivalence(margin / self.sd))
        seeds = self._seeds_for_equivalence(self.effect)
        return EQUIVALENCE.format(seeds=seeds, sd=margin / self.effect_in_runs)

    def _seeds_for_equivalence(self, margin: float) -> str:
        """Return the number of seeds that show a difference of 0 to be within a margin in standard deviations."""

        def is_enough(seeds: int) -> bool:
            degrees = expected_degrees(self.variants, seeds, self.contrasts)
            power = equivalence_power(margin, seeds, level=self.level, degrees=degrees)
            return bool(power >= POWER)

        return _seeds_text(fewest_seeds(is_enough))


def _seeds_text(seeds: int | None) -> str:
    """Return a number of seeds; None is more than the largest considered number."""
    return f"more than {MAX_SEEDS:,} seeds" if seeds is None else f"{seeds} seeds"
