"""Comparisons of many variants with the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.looks import Looks
from headtohead_judge.verdicts import WORSE, Judgement, judge


@dataclass(frozen=True)
class BestComparison:
    """A variant compared with all others, as a family of its own.

    Attributes:
        against: The judgement of the variant against each other side, ``better`` if the variant is.
        higher_is_better: Whether a higher score is better.
        margin: The smallest difference that matters; None without one.
    """

    against: Mapping[Side, Judgement]
    higher_is_better: bool
    margin: float | None

    @property
    def is_worse(self) -> bool:
        """Whether the variant is worse than at least one other variant, so that it is not the best."""
        return any(judgement.direction == WORSE for judgement in self.against.values())

    @property
    def is_equivalent(self) -> bool:
        """Whether no other variant can be better by the margin or more, so that the variant is equivalent to the best.

        False without a margin.
        """
        return self.margin is not None and self.largest_deficit < self.margin

    @property
    def largest_deficit(self) -> float:
        """How much worse than the best the variant can be: the largest deficit in any of the intervals, at least 0.

        Infinite if a difference has no interval.
        """
        largest = 0.0
        for judgement in self.against.values():
            if judgement.interval is None or math.isnan(judgement.interval.low):
                return math.inf
            worst = judgement.interval.high
            if self.higher_is_better:
                worst = -judgement.interval.low
            largest = max(largest, worst)
        return largest

    @property
    def worse_p(self) -> float:
        """The smallest adjusted p of all differences in which the variant has the worse mean; 1 without any."""
        p_values = [1.0]
        for judgement in self.against.values():
            if judgement.interval is None:
                continue
            middle = judgement.interval.low + judgement.interval.high
            if middle and (middle < 0) == self.higher_is_better:
                p_values.append(judgement.adjusted_p)
        return min(p_values)


def compare_with_best(
    sides: Sequence[Side],
    table: ScoreTable,
    *,
    margin: float | None = None,
    higher_is_better: bool = True,
    looks: Looks | None = None,
) -> dict[Side, BestComparison]:
    """Return the comparison of each side with the best of all.

    Any other variant can be the best, so each variant is compared with all others, and these comparisons are a family
    with simultaneous intervals. The variants that are not worse than another one include a best variant in at least
    95 % of studies (D. G. Edwards and J. C. Hsu, Multiple comparisons with the best treatment, JASA 78, 1983). Two
    variants are compared on the seeds that both have.

    Args:
        sides: The compared sides, at least two; every two of them share at least one seed.
        table: Their scores, and those of all variants that share the effects of the seeds with them.
        margin: The smallest difference that matters.
        higher_is_better: Whether a higher score is better.
        looks: The planned looks of a study with sequential seeds.

    Raises:
        ValueError: If there are fewer than two sides.
    """
    if len(sides) < 2:
        raise ValueError(f"a comparison with the best needs two variants, got {len(sides)}")
    comparisons = {}
    for side in sides:
        others = [other for other in sides if other != side]
        contrasts = []
        for other in others:
            contrasts.append(Contrast(other.variant, "best", ({side: 1.0, other: -1.0},)))
        differences = [estimate.difference for estimate in estimate_family(contrasts, table)]
        judgements = judge(
            differences, margin=margin, higher_is_better=higher_is_better, looks=looks
        )
        against = dict(zip(others, judgements, strict=True))
        comparisons[side] = BestComparison(against, higher_is_better, margin)
    return comparisons
