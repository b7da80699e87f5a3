"""Whether a measured difference agrees with a published or predicted result, read off the interval of its verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headtohead.schema.experiment_file import Expectation
from headtohead_judge.paired_tests import ROUNDING, Interval
from headtohead_judge.verdicts import NO_VERDICT, NOT_SHOWN, SAME

AgreementVerdict = Literal["agrees", "disagrees", "undecided"]


@dataclass(frozen=True)
class Agreement:
    """Whether the measured difference is as expected.

    Attributes:
        verdict: ``agrees`` or ``disagrees`` if every difference in the interval does, else ``undecided``.
        finding: What the interval shows: ``higher`` or ``lower``, with ``by more than`` or ``by less than`` the size
            that is expected, ``equal to within`` it, or ``no difference shown``; ``no verdict`` without an interval, or
            ``same by construction``.
        published: ``larger`` or ``smaller`` if every difference in the interval is, compared with the published one in
            its direction; else empty.
        is_within: Whether the interval lies within the expected size.
    """

    verdict: AgreementVerdict
    finding: str
    published: str = ""
    is_within: bool = False

    def __str__(self) -> str:
        """Return all words, such as ``agrees: higher by more than 2, larger than published``."""
        text = f"{self.verdict}: {self.finding}"
        if self.published:
            text += f", {self.published} than published"
        return text


UNTESTED_AGREEMENT = Agreement("undecided", NO_VERDICT)
"""The agreement of a contrast without an interval."""


def agreement_of_zero(expect: Expectation) -> Agreement:
    """Return the agreement of a contrast that is 0 by construction: only an expected equality agrees."""
    if expect.direction == "equal":
        return Agreement("agrees", SAME, is_within=True)
    return Agreement("disagrees", SAME)


def agreement(expect: Expectation, interval: Interval | None) -> Agreement:
    """Compare the interval of a difference with the expected result.

    ``by`` is ``expect.by``, 0 without an expected size. Bounds exceed a number if they do by more than rounding.

    - ``higher`` agrees if the whole interval is above ``by``, and disagrees if it is below ``by``.
    - ``lower`` agrees if the whole interval is below −``by``, and disagrees if it is above −``by``.
    - ``equal`` agrees if the whole interval is between −``by`` and ``by``, and disagrees if it is above ``by`` or below
      −``by``.

    Everything else is undecided, also a difference without an interval or with an infinite one.
    """
    if interval is None or not math.isfinite(interval.low):
        return UNTESTED_AGREEMENT
    low, high = interval.low, interval.high
    is_above = _is_above(low, expect.by)
    is_below = _is_above(-expect.by, high)
    is_within = bool(expect.by) and _is_above(low, -expect.by) and _is_above(expect.by, high)
    is_beyond = is_above or is_below
    if expect.direction == "equal":
        agrees = is_within
        disagrees = is_beyond
    elif expect.direction == "higher":
        agrees = is_above
        disagrees = _is_above(expect.by, high)
    else:
        agrees = is_below
        disagrees = _is_above(low, -expect.by)
    verdict: AgreementVerdict = "undecided"
    if agrees:
        verdict = "agrees"
    elif disagrees:
        verdict = "disagrees"
    return Agreement(
        verdict,
        _finding(interval, expect.by, is_within=is_within, is_beyond=is_beyond),
        _against_published(interval, expect.published),
        is_within,
    )


def _finding(interval: Interval, by: float, *, is_within: bool, is_beyond: bool) -> str:
    """Return what an interval shows, as in `Agreement.finding`.

    An interval on one side of 0 has a direction, and *by more than* or *by less than* the expected size if all of it
    is. An interval that contains 0 is *equal to within* that size if it lies within it; otherwise, no difference is
    shown. ``by`` is the expected size, 0 without one.
    """
    if _is_above(interval.low, 0.0):
        direction = "higher"
    elif _is_above(0.0, interval.high):
        direction = "lower"
    elif is_within:
        return f"equal to within {by:g}"
    else:
        return NOT_SHOWN
    if not by:
        return direction
    if is_within:
        return f"{direction} by less than {by:g}"
    return f"{direction} by more than {by:g}" if is_beyond else direction


def _against_published(interval: Interval, published: float | None) -> str:
    """Return whether a difference is ``larger`` or ``smaller`` than the published one, in the direction of that one.

    Empty if nothing or 0 is published, or if the interval contains the published difference.
    """
    if not published:
        return ""
    is_above = _is_above(interval.low, published)
    is_below = _is_above(published, interval.high)
    if not is_above and not is_below:
        return ""
    is_larger = is_above == (published > 0)
    return "larger" if is_larger else "smaller"


def _is_above(value: float, threshold: float) -> bool:
    """Return whether a value exceeds a threshold by more than rounding, since an interval can be a point."""
    scale = max(abs(value), abs(threshold))
    return value - threshold > ROUNDING * scale
