"""Verdicts of a family of contrasts: Holm's correction, tests of equivalence, intervals at the Holm step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import ALPHA, Difference, Interval, equivalence_p, holm, interval

Verdict = Literal[
    "same by construction", "identical", "equivalent", "better", "worse", "inconclusive", "no verdict"
]  # fmt: skip
SAME: Verdict = "same by construction"
IDENTICAL: Verdict = "identical"
EQUIVALENT: Verdict = "equivalent"
BETTER: Verdict = "better"
WORSE: Verdict = "worse"
INCONCLUSIVE: Verdict = "inconclusive"
NO_VERDICT: Verdict = "no verdict"


@dataclass(frozen=True)
class EquivalenceTest:
    """Two one-sided tests within ``margin``; ``holm_p`` is adjusted within the family.

    ``interval`` has the level ``1 - 2 alpha`` of the contrast's Holm step. It lies within the margin if and only if
    the test rejects.
    """

    margin: float
    holm_p: float
    interval: Interval


@dataclass(frozen=True)
class Judgement:
    """The verdict on a contrast, with the tests that it rests on.

    Attributes:
        verdict: The first of these that applies: ``identical`` (equal scores in every seed), ``equivalent``,
            ``better`` or ``worse`` (``holm_p`` at most ``ALPHA``), ``inconclusive``; ``no verdict`` without a test.
        holm_p: Holm-adjusted p of the paired t-test.
        interval: Interval at the level of the contrast's Holm step. It excludes 0 if and only if ``holm_p`` is
            at most ``ALPHA``. None for a difference that is equal in too few seeds for a verdict.
        equivalence: The test of equivalence; None without a margin or a test.
    """

    verdict: Verdict = NO_VERDICT
    holm_p: float = math.nan
    interval: Interval | None = None
    equivalence: EquivalenceTest | None = None

    @property
    def significant(self) -> bool:
        """Whether the difference is significant; an equivalent difference can be."""
        return self.holm_p <= ALPHA


UNTESTED = Judgement()


def judge(
    family: Sequence[Difference | None],
    *,
    margin: float | Sequence[float | None] | None = None,
    higher_is_better: bool | Sequence[bool] = True,
    looks: Looks | None = None,
) -> list[Judgement]:
    """Return the judgement of each contrast of a family.

    Args:
        family: The differences; None for a contrast without scores, which is not counted as a test.
        margin: The smallest difference that matters, of all contrasts or of each; None for no test of equivalence.
        higher_is_better: Whether a positive difference is better, of all contrasts or of each.
        looks: The numbers of seeds at which the study is judged; None for a single look. Every p-value is first
            adjusted for the looks, then by Holm. Intervals have the levels of these tests at each look.
    """

    def over_looks(p: float, sides: int) -> float:
        return looks.adjusted(p, sides) if looks else p

    def at_look(level: float, sides: int) -> float:
        return looks.level(level, sides) if looks else level

    margins = margin if isinstance(margin, Sequence) else [margin] * len(family)
    better = higher_is_better if isinstance(higher_is_better, Sequence) else [higher_is_better] * len(family)
    p_values = [over_looks(found.p, 2) if found else math.nan for found in family]
    adjusted, levels = holm(p_values), holm_levels(p_values)
    one_sided = [
        over_looks(equivalence_p(found, size), 1) if found and size else math.nan
        for found, size in zip(family, margins, strict=True)
    ]
    equivalence_adjusted, equivalence_levels = holm(one_sided), holm_levels(one_sided)
    judgements = []
    for index, found in enumerate(family):
        if found is None or math.isnan(found.p):
            judgements.append(UNTESTED)
            continue
        equivalence = None
        if size := margins[index]:
            within = interval(found, 1 - 2 * at_look(equivalence_levels[index], 1))
            equivalence = EquivalenceTest(size, equivalence_adjusted[index], within)
        p = adjusted[index]
        verdict = _verdict(found, p, equivalence, better[index])
        too_few = found.kind == "constant" and p > ALPHA
        step = None if too_few else interval(found, 1 - at_look(levels[index], 2))
        judgements.append(Judgement(verdict, p, step, equivalence))
    return judgements


def holm_levels(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """Return the level at which Holm's procedure tests each p-value; NaN for NaN.

    A rejected test has the level of its own step. All other tests have the level of the step at which the
    procedure stops.
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    levels = np.full(len(p), math.nan)
    for rank, index in enumerate(order):
        levels[order[rank:]] = alpha / (len(order) - rank)
        if p[index] > levels[index]:
            break
    return [float(level) for level in levels]


def _verdict(found: Difference, p: float, equivalence: EquivalenceTest | None, higher_is_better: bool) -> Verdict:
    if found.kind == "identical":
        return IDENTICAL
    if equivalence and equivalence.holm_p <= ALPHA:
        return EQUIVALENT
    if p <= ALPHA:
        return BETTER if (found.mean > 0) == higher_is_better else WORSE
    return NO_VERDICT if found.kind == "constant" else INCONCLUSIVE
