"""Whether a measured difference agrees with a published or predicted result.

With m declared contrasts that have an expected result, each agreement has level 5 %/m (that of a look with sequential
seeds), so that all agreements are correct at the same time in at least 95 of 100 studies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headtohead.schema.experiment_file import Expectation
from headtohead_judge.paired_tests import (
    Difference,
    Interval,
    equivalence_p,
    interval,
    rounded,
    t_quantile,
)
from headtohead_judge.verdicts import (
    BEYOND,
    NO_VERDICT,
    SAME,
    UNCLEAR,
    UNDETECTED,
    WITHIN,
    Size,
)

AgreementVerdict = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Agreement:
    """Whether the measured difference is as expected.

    Attributes:
        verdict: ``agrees``: the whole interval is beyond ``by`` on the expected side, or with ``equal`` two one-sided
            tests find the difference within ``by``. ``disagrees``: the whole interval contradicts the expected
            result. Otherwise ``undecided``.
        direction: ``higher`` or ``lower`` if the interval excludes 0, else ``undetected``; ``no verdict`` without a
            difference, or ``same by construction``.
        size: Whether the difference is smaller than ``by``; None without ``by``.
        published: ``larger`` or ``smaller`` if the whole interval is, compared with the published difference in its
            direction; else empty.
        interval: The interval of the difference that the verdict rests on; None without a difference.
    """

    verdict: AgreementVerdict
    direction: str = UNDETECTED
    size: Size | None = None
    published: str = ""
    interval: Interval | None = None

    def __str__(self) -> str:
        """Return all words, such as ``agrees: higher, beyond, larger than published``."""
        words = []
        # That there is no difference rests on an interval of another level than an undetected direction.
        is_equality = self.verdict == "agrees" and self.size == WITHIN
        if not (is_equality and self.direction == UNDETECTED):
            words.append(self.direction)
        if self.size:
            words.append(self.size)
        if self.published:
            words.append(f"{self.published} than published")
        return f"{self.verdict}: {', '.join(words)}"


UNTESTED_AGREEMENT = Agreement("undecided", NO_VERDICT)
"""The agreement of a contrast without a difference."""


def agreement_of_zero(expect: Expectation) -> Agreement:
    """Return the agreement of a contrast that is 0 by construction: only an expected equality agrees."""
    if expect.direction == "equal":
        return Agreement("agrees", SAME)
    return Agreement("disagrees", SAME)


def agreement(expect: Expectation, difference: Difference, level: float) -> Agreement:
    """Test a difference against the expected result at ``level``.

    A higher or lower result agrees if the whole interval is beyond ``expect.by``, and disagrees if it is on the other
    side of it. An equal result agrees if the difference is smaller than ``expect.by``, and disagrees if it is larger.
    Everything else is undecided, also a difference of a single seed.
    """
    side_of_zero = _side(difference, 0.0, level)
    direction = {"above": "higher", "below": "lower"}.get(side_of_zero, UNDETECTED)
    size = _size(difference, expect.by, level)
    if expect.direction == "equal":
        agrees = size == WITHIN
        disagrees = size == BEYOND
    elif expect.direction == "higher":
        side = _side(difference, expect.by, level)
        agrees = side == "above"
        disagrees = side == "below"
    else:
        side = _side(difference, -expect.by, level)
        agrees = side == "below"
        disagrees = side == "above"
    verdict: AgreementVerdict = "undecided"
    if agrees:
        verdict = "agrees"
    elif disagrees:
        verdict = "disagrees"
    # Two one-sided tests at this level correspond to an interval with both tails outside it.
    is_two_tests = expect.direction == "equal" and agrees
    tails = 2 * level if is_two_tests else level
    return Agreement(
        verdict,
        direction,
        size,
        _against_published(difference, expect.published, level),
        interval(difference, 1 - tails),
    )


def _size(difference: Difference, limit: float, level: float) -> Size | None:
    """Return whether the absolute difference is WITHIN the limit, BEYOND it or UNCLEAR; None for a limit of 0."""
    if not limit:
        return None
    if equivalence_p(difference, limit) <= level:
        return WITHIN
    is_above = _side(difference, limit, level) == "above"
    is_below = _side(difference, -limit, level) == "below"
    if is_above or is_below:
        return BEYOND
    return UNCLEAR


def _against_published(difference: Difference, published: float | None, level: float) -> str:
    """Return whether a difference is ``larger`` or ``smaller`` than the published one, in the direction of that one.

    Empty if nothing or 0 is published, or if the interval contains the published difference.
    """
    if not published:
        return ""
    side = _side(difference, published, level)
    if not side:
        return ""
    is_larger = (side == "above") == (published > 0)
    return "larger" if is_larger else "smaller"


def _side(difference: Difference, threshold: float, level: float) -> Literal["above", "below", ""]:
    """Return on which side of a threshold the whole interval is; empty if it contains the threshold.

    It is also empty with fewer than two seeds. An interval is a point if the difference is the same in every seed;
    then the sign-flip test must also reject the threshold, because a point excludes every other value with any number
    of seeds.
    """
    if difference.n < 2:
        return ""
    scale = max(abs(difference.mean), abs(threshold))
    excess = float(rounded(difference.mean - threshold, scale))
    is_point = difference.kind != "varied"
    if is_point:
        # All differences from the threshold have the same sign: the sign-flip test has its smallest p.
        smallest_two_sided_p = 2 * difference.smallest_p
        if not excess or smallest_two_sided_p > level:
            return ""
    half_width = t_quantile(difference.degrees, 1 - level) * difference.error
    if excess > half_width:
        return "above"
    if excess < -half_width:
        return "below"
    return ""
