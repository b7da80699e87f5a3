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
        smallest_size = max(self.interval.low, -self.interval.high)
        return BEYOND if smallest_size >= self.margin else UNCLEAR


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
        if self.size_test is None or self.direction in (IDENTICAL, NO_VERDICT):
            return None
        return self.size_test.size

    @property
    def verdict(self) -> str:
        """Both words, such as ``better, within``, or the direction alone."""
        if self.size is None:
            return self.direction
        return f"{self.direction}, {self.size}"

    def exit_code(self, accept: Collection[str]) -> int:
        """Return 0 if ``accept`` has the direction or the verdict, else 1 for ``worse``, else 3."""
        if self.direction in accept or self.verdict in accept:
            return 0
        return 1 if self.direction == WORSE else 3

    def signed(self, sign: float) -> Judgement:
        """Return the judgement, for a negative ``sign`` that of the difference with exchanged sides."""
        if sign > 0:
            return self
        interval = self.interval
        if interval is not None:
            interval = -interval
        size_test = self.size_test
        if size_test is not None:
            size_test = replace(size_test, interval=-size_test.interval)
        direction = EXCHANGED.get(self.direction, self.direction)
        return replace(self, direction=direction, interval=interval, size_test=size_test)


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
    margins = margin if isinstance(margin, Sequence) else [margin] * len(family)
    directions = (
        higher_is_better
        if isinstance(higher_is_better, Sequence)
        else [higher_is_better] * len(family)
    )
    if looks is None:
        looks = Looks.single()
    p_values = []
    size_p_values = []
    for difference, size in zip(family, margins, strict=True):
        p = math.nan
        size_p = math.nan
        if difference:
            p = looks.adjusted(difference.p, sides=2)
        if difference and size:
            size_p = looks.adjusted(equivalence_p(difference, size), sides=1)
        p_values.append(p)
        size_p_values.append(size_p)
    holm_p, levels = holm(p_values)
    size_holm_p, size_levels = holm(size_p_values)
    judgements = []
    for index, difference in enumerate(family):
        if difference is None or math.isnan(difference.p):
            judgements.append(UNTESTED)
            continue
        size = margins[index]
        size_test = None
        if size:
            level = looks.level(size_levels[index], sides=1)
            size_test = SizeTest(size, size_holm_p[index], interval(difference, 1 - 2 * level))
        p = holm_p[index]
        interval_at_step = None
        if difference.kind != "constant" or p <= ALPHA:
            level = looks.level(levels[index], sides=2)
            interval_at_step = interval(difference, 1 - level)
        direction = _direction(difference, p, size_test, directions[index])
        judgements.append(Judgement(direction, p, interval_at_step, size_test))
    return judgements


def _direction(
    difference: Difference, p: float, size_test: SizeTest | None, higher_is_better: bool | None
) -> Direction:
    if difference.kind == "identical":
        return IDENTICAL
    if p <= ALPHA and higher_is_better is None:
        return LARGER if difference.mean > 0 else SMALLER
    if p <= ALPHA:
        is_better = (difference.mean > 0) == higher_is_better
        return BETTER if is_better else WORSE
    is_within = size_test is not None and size_test.size == WITHIN
    if difference.kind == "constant" and not is_within:
        return NO_VERDICT  # too few seeds for the sign-flip test
    return UNDETECTED
