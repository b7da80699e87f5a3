"""Verdicts of a family of contrasts: Holm's correction, tests of equivalence, intervals at the Holm step."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import (
    ALPHA,
    Difference,
    Interval,
    equivalence_p,
    holm,
    interval,
)

Direction = Literal[
    "same by construction",
    "identical",
    "better",
    "worse",
    "larger",
    "smaller",
    "undetected",
    "no verdict",
]
Size = Literal["within", "beyond", "unclear"]
SAME: Direction = "same by construction"
IDENTICAL: Direction = "identical"
BETTER: Direction = "better"
WORSE: Direction = "worse"
LARGER: Direction = "larger"
SMALLER: Direction = "smaller"
UNDETECTED: Direction = "undetected"
NO_VERDICT: Direction = "no verdict"
DETECTED = (BETTER, WORSE, LARGER, SMALLER)
EXCHANGED: dict[Direction, Direction] = {
    BETTER: WORSE,
    WORSE: BETTER,
    LARGER: SMALLER,
    SMALLER: LARGER,
}
WITHIN: Size = "within"
BEYOND: Size = "beyond"
UNCLEAR: Size = "unclear"


@dataclass(frozen=True)
class SizeTest:
    """Whether a difference is smaller than ``margin``; ``holm_p`` is that of two one-sided tests, adjusted by Holm.

    ``interval`` has the level ``1 - 2 alpha`` of the contrast's Holm step. It lies within the margin if and only if
    the tests reject.
    """

    margin: float
    holm_p: float
    interval: Interval

    @property
    def size(self) -> Size:
        """Whether the interval is within the margin, at or beyond it, or neither, which is ``unclear``."""
        if self.holm_p <= ALPHA:
            return WITHIN
        return BEYOND if max(self.interval.low, -self.interval.high) >= self.margin else UNCLEAR


@dataclass(frozen=True)
class Judgement:
    """The verdict on a contrast, which is a direction and, with a margin, a size, with the tests that it rests on.

    Attributes:
        direction: The first of these that applies: ``identical`` (equal scores in every seed), ``better`` or
            ``worse`` (``holm_p`` at most ``ALPHA``; ``larger`` or ``smaller`` for a value that is no quality), ``no
            verdict`` (no test, or too few seeds), ``undetected``.
        holm_p: Holm-adjusted p of the difference.
        interval: Interval at the level of the contrast's Holm step (`holm`). It excludes 0 if and only if
            ``holm_p`` is at most ``ALPHA``. None for a difference that is equal in too few seeds for a verdict.
        size_test: The test of the size; None without a margin or a test.
    """

    direction: Direction = NO_VERDICT
    holm_p: float = math.nan
    interval: Interval | None = None
    size_test: SizeTest | None = None

    @property
    def size(self) -> Size | None:
        """Whether the difference is smaller than the margin; None without a margin or a verdict."""
        return (
            self.size_test.size
            if self.size_test and self.direction not in (IDENTICAL, NO_VERDICT)
            else None
        )

    @property
    def verdict(self) -> str:
        """Both words, such as ``better, within``, or the direction alone."""
        return ", ".join(filter(None, (self.direction, self.size)))

    def exit_code(self, accept: Collection[str]) -> int:
        """Return 0 if ``accept`` has the direction or the verdict, else 1 for ``worse``, else 3."""
        if self.direction in accept or self.verdict in accept:
            return 0
        return 1 if self.direction == WORSE else 3

    def signed(self, sign: float) -> Judgement:
        """Return the judgement, for a negative ``sign`` that of the difference with exchanged sides."""
        if sign > 0:
            return self
        test = self.size_test and replace(self.size_test, interval=-self.size_test.interval)
        direction = EXCHANGED.get(self.direction, self.direction)
        return replace(
            self, direction=direction, interval=self.interval and -self.interval, size_test=test
        )


UNTESTED = Judgement()


def judge(
    family: Sequence[Difference | None],
    *,
    margin: float | Sequence[float | None] | None = None,
    higher_is_better: bool | Sequence[bool | None] = True,
    looks: Looks | None = None,
) -> list[Judgement]:
    """Return the judgement of each contrast of a family.

    Args:
        family: The differences; None for a contrast without scores, which is not counted as a test.
        margin: The smallest difference that matters, of all contrasts or of each; None for no test of equivalence.
        higher_is_better: Whether a positive difference is better, of all contrasts or of each; None for neither.
        looks: The numbers of seeds at which the study is judged; None for a single look. Every p-value is first
            adjusted for the looks, then by Holm. Intervals have the levels of these tests at each look.
    """

    def over_looks(p: float, sides: int) -> float:
        return looks.adjusted(p, sides) if looks else p

    def at_look(level: float, sides: int) -> float:
        return looks.level(level, sides) if looks else level

    margins = margin if isinstance(margin, Sequence) else [margin] * len(family)
    better = (
        higher_is_better
        if isinstance(higher_is_better, Sequence)
        else [higher_is_better] * len(family)
    )
    p_values = [over_looks(found.p, 2) if found else math.nan for found in family]
    adjusted, levels = holm(p_values)
    one_sided = [
        over_looks(equivalence_p(found, size), 1) if found and size else math.nan
        for found, size in zip(family, margins, strict=True)
    ]
    equivalence_adjusted, equivalence_levels = holm(one_sided)
    judgements = []
    for index, found in enumerate(family):
        if found is None or math.isnan(found.p):
            judgements.append(UNTESTED)
            continue
        size_test = None
        if size := margins[index]:
            within = interval(found, 1 - 2 * at_look(equivalence_levels[index], 1))
            size_test = SizeTest(size, equivalence_adjusted[index], within)
        p = adjusted[index]
        direction = _direction(found, p, size_test, better[index])
        too_few = found.kind == "constant" and p > ALPHA
        step = None if too_few else interval(found, 1 - at_look(levels[index], 2))
        judgements.append(Judgement(direction, p, step, size_test))
    return judgements


def _direction(
    found: Difference, p: float, test: SizeTest | None, higher_is_better: bool | None
) -> Direction:
    if found.kind == "identical":
        return IDENTICAL
    if p <= ALPHA:
        if higher_is_better is None:
            return LARGER if found.mean > 0 else SMALLER
        return BETTER if (found.mean > 0) == higher_is_better else WORSE
    is_open = found.kind == "constant" and not (test and test.size == WITHIN)
    return NO_VERDICT if is_open else UNDETECTED
