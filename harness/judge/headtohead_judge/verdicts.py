"""Verdicts of a family of contrasts: every word is read off one interval per difference.

The intervals of a family are simultaneous: in at least 95 % of studies, all of them contain the true difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import (
    ALPHA,
    Difference,
    Interval,
    adjusted_for,
    interval,
    level_of_each,
)

Direction = Literal[
    "same by construction",
    "identical",
    "better",
    "worse",
    "larger",
    "smaller",
    "equivalent",
    "no difference shown",
    "cannot tell",
    "no verdict",
]
Size = Literal["by more than the margin", "by less than the margin"]
SAME: Direction = "same by construction"
IDENTICAL: Direction = "identical"
BETTER: Direction = "better"
WORSE: Direction = "worse"
LARGER: Direction = "larger"
SMALLER: Direction = "smaller"
EQUIVALENT: Direction = "equivalent"
NOT_SHOWN: Direction = "no difference shown"
CANNOT_TELL: Direction = "cannot tell"
NO_VERDICT: Direction = "no verdict"
DETECTED = (BETTER, WORSE, LARGER, SMALLER)
EXCHANGED: dict[Direction, Direction] = {
    BETTER: WORSE,
    WORSE: BETTER,
    LARGER: SMALLER,
    SMALLER: LARGER,
}
BY_MORE: Size = "by more than the margin"
BY_LESS: Size = "by less than the margin"


@dataclass(frozen=True)
class Judgement:
    """The verdict on a contrast, with the interval that it is read off.

    Attributes:
        direction: ``identical``: equal scores in every seed, to the decimals that they have. ``better`` or ``worse``:
            the interval excludes 0; ``larger`` or ``smaller`` for a value that is no quality. ``equivalent``: the
            interval contains 0 and lies inside the margin. ``no difference shown``: any other interval. ``cannot
            tell``: equal scores in every seed, each the lowest or highest possible one. ``no verdict``: there is no
            interval.
        size: ``by more than the margin``: the interval excludes every difference below the margin. ``by less than the
            margin``: it lies inside the margin. None if neither holds, without a margin, and for other directions.
        adjusted_p: p of the difference, corrected for the looks and the number of contrasts; NaN without a test.
        interval: The simultaneous interval; None without a test, and for a constant difference of too few seeds.
        margin: The smallest difference that matters; None without one.
    """

    direction: Direction = NO_VERDICT
    size: Size | None = None
    adjusted_p: float = math.nan
    interval: Interval | None = None
    margin: float | None = None

    @property
    def verdict(self) -> str:
        """Direction and size, such as ``better by more than the margin``, or the direction alone."""
        return f"{self.direction} {self.size}" if self.size else self.direction

    @property
    def is_within_margin(self) -> bool:
        """Whether the interval lies inside the margin; False without one of them."""
        return self.interval is not None and _is_inside(self.interval, self.margin)

    @property
    def largest_possible(self) -> float:
        """The size of the largest difference in the interval; NaN without an interval."""
        if self.interval is None:
            return math.nan
        return max(abs(self.interval.low), abs(self.interval.high))

    def exit_code(self, accept: Collection[str]) -> int:
        """Return 0 if ``accept`` has the direction or the verdict, else 1 for ``worse``, else 3."""
        if self.direction in accept or self.verdict in accept:
            return 0
        return 1 if self.direction == WORSE else 3

    def signed(self, sign: float) -> Judgement:
        """Return the judgement, for a negative ``sign`` that of the difference with exchanged sides."""
        if sign > 0:
            return self
        direction = EXCHANGED.get(self.direction, self.direction)
        exchanged = None if self.interval is None else -self.interval
        return replace(self, direction=direction, interval=exchanged)


def _is_inside(ends: Interval, margin: float | None) -> bool:
    return margin is not None and -margin < ends.low and ends.high < margin


UNTESTED = Judgement()

SIDES_OF_ZERO: dict[bool | None, tuple[str, str]] = {
    True: ("better", "worse"),
    False: ("worse", "better"),
    None: ("higher", "lower"),
}
"""The words for a positive and for a negative difference, by whether a higher score is better."""


def possible_text(
    judgement: Judgement, higher_is_better: bool | None, show: Callable[[float], str]
) -> str:
    """Return how large a difference that was not shown can be: ``up to 0.066 better or 0.061 worse``.

    These are the ends of the interval, the one further from 0 first. Empty for other verdicts.

    Args:
        judgement: The judgement.
        higher_is_better: Whether a positive difference is better; None for neither.
        show: Returns a number without a sign as text.
    """
    if judgement.direction != NOT_SHOWN or judgement.interval is None:
        return ""
    above, below = SIDES_OF_ZERO[higher_is_better]
    ends = [(judgement.interval.high, above), (-judgement.interval.low, below)]
    (far, far_side), (near, near_side) = sorted(ends, key=lambda end: end[0], reverse=True)
    return f"up to {show(far)} {far_side} or {show(near)} {near_side}"


def judge(
    family: Sequence[Difference | None],
    *,
    margin: float | Sequence[float | None] | None = None,
    higher_is_better: bool | Sequence[bool | None] | None = True,
    looks: Looks | None = None,
) -> list[Judgement]:
    """Return the judgement of each contrast of a family.

    The k tested contrasts of a family have intervals at the level 0.95^(1/k) each. Contrasts that are identical or
    have no test are not counted.

    Args:
        family: The differences; None for a contrast without scores.
        margin: The smallest difference that matters, of all contrasts or of each; None without one.
        higher_is_better: Whether a positive difference is better, of all contrasts or of each; None for neither.
        looks: The numbers of seeds at which the study is judged; None for a single look. The intervals of every look
            have the nominal level of the looks.
    """
    margins = margin if isinstance(margin, Sequence) else [margin] * len(family)
    directions = (
        higher_is_better
        if isinstance(higher_is_better, Sequence)
        else [higher_is_better] * len(family)
    )
    if looks is None:
        looks = Looks.single()
    tests = sum(is_tested(difference) for difference in family)
    level = looks.level(level_of_each(tests))
    judgements = []
    for difference, size, is_higher_better in zip(family, margins, directions, strict=True):
        if difference is None or not difference.sources:
            judgements.append(UNTESTED)
        elif difference.kind == "identical":
            ends = interval(difference, 1 - level)
            judgements.append(Judgement(IDENTICAL, None, 1.0, ends, size))
        else:
            p = adjusted_for(tests, looks.adjusted(difference.p))
            judgements.append(_judgement(difference, level, p, size, is_higher_better))
    return judgements


def is_tested(difference: Difference | None) -> bool:
    """Return whether a difference counts as a test: it has at least two seeds and is not 0 in each of them."""
    return difference is not None and difference.kind in ("varied", "constant")


def _judgement(
    difference: Difference,
    level: float,
    adjusted_p: float,
    margin: float | None,
    higher_is_better: bool | None,
) -> Judgement:
    """Return the judgement of a tested difference with the interval of confidence 1 - ``level``."""
    if difference.kind == "constant" and difference.sign_flip_p > level:
        return Judgement(adjusted_p=adjusted_p, margin=margin)
    ends = interval(difference, 1 - level)
    is_inside = _is_inside(ends, margin)
    is_outside = margin is not None and (ends.low >= margin or ends.high <= -margin)
    if ends.low <= 0 <= ends.high:
        direction = EQUIVALENT if is_inside else NOT_SHOWN
        return Judgement(direction, None, adjusted_p, ends, margin)
    size = None
    if is_outside:
        size = BY_MORE
    elif is_inside:
        size = BY_LESS
    direction = _direction(ends.low > 0, higher_is_better)
    return Judgement(direction, size, adjusted_p, ends, margin)


def _direction(is_positive: bool, higher_is_better: bool | None) -> Direction:
    """Return the word for a positive or negative difference."""
    if higher_is_better is None:
        return LARGER if is_positive else SMALLER
    return BETTER if is_positive == higher_is_better else WORSE


def unlike_paired_tests(
    family: Sequence[Difference | None],
    judgements: Sequence[Judgement],
    *,
    looks: Looks | None = None,
) -> list[bool]:
    """Return, of each contrast of a family, whether its paired t-test disagrees on whether there is a difference.

    The paired t-test has the variance of the differences over seeds alone, and is corrected for the looks and the
    number of contrasts as the intervals are. False for contrasts without a verdict or a paired t-test, as of
    differences that do not vary over seeds.

    Args:
        family: The differences; None for a contrast without scores.
        judgements: The judgements that `judge` returned for this family.
        looks: The looks that these judgements are corrected for.
    """
    if looks is None:
        looks = Looks.single()
    tests = sum(is_tested(difference) for difference in family)
    disagreements = []
    for difference, judgement in zip(family, judgements, strict=True):
        if difference is None or difference.kind != "varied" or math.isnan(difference.paired_p):
            disagreements.append(False)
            continue
        is_significant = adjusted_for(tests, looks.adjusted(difference.paired_p)) <= ALPHA
        has_verdict = judgement.direction != NO_VERDICT
        disagreements.append(has_verdict and is_significant != (judgement.direction in DETECTED))
    return disagreements
