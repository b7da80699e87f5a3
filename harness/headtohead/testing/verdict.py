"""What an invariant says about a variant: it holds, it is broken, or it does not apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headtohead.testing.seen import Seen

State = Literal["holds", "broken", "does not apply"]

EXACT = 1e-9
"""Largest difference, in float64, of two computations that are equal in exact arithmetic."""

VISIBLE = 1e-6
"""Smallest difference that counts as a change."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check, the number that decided it, and the reason in words.

    ``because`` is the choice that is known to break what is broken, if there is one.
    """

    state: State
    number: float | None
    reason: str
    because: str | None = None
    shown: str | None = None

    def __str__(self) -> str:
        shown = "" if self.number is None else f" [{self.number:.3g}]"
        named = "" if self.because is None else f"; a consequence of {self.because}"
        return f"{self.state}: {self.reason}{shown}{named}"


def within(number: float | Seen, what: str, bound: float = EXACT, shown: str | None = None) -> Verdict:
    """Return that an invariant holds if ``number`` is at most ``bound``; NaN breaks it."""
    if isinstance(number, Seen):
        shown, number = number.where, number.number
    if number <= bound:
        return Verdict("holds", number, what)
    shown = shown or f"{what} is {number:.3g}"
    return Verdict("broken", number, f"expected at most {bound:.0e}: {what}", shown=shown)


def beyond(number: float | Seen, what: str, bound: float = VISIBLE, shown: str | None = None) -> Verdict:
    """Return that an invariant holds if ``number`` is at least ``bound``: something must change."""
    if isinstance(number, Seen):
        shown, number = number.where, number.number
    if number >= bound:
        return Verdict("holds", number, what)
    shown = shown or f"{what} is {number:.3g}"
    return Verdict("broken", number, f"expected at least {bound:.0e}: {what}", shown=shown)


def outside(reason: str, number: float | Seen, predicted: str, bound: float = VISIBLE) -> Verdict:
    """Return that a variant is outside the domain, where ``predicted`` must be seen to happen."""
    if isinstance(number, Seen):
        number = number.number
    if number >= bound:
        return Verdict("does not apply", number, f"{reason}; as predicted, {predicted}")
    told = f"{reason}, yet it does not happen that {predicted}"
    return Verdict("broken", number, told, shown=told)


def does_not_apply(reason: str) -> Verdict:
    """Return that there is nothing to check, and why."""
    return Verdict("does not apply", None, reason)


def worst(*verdicts: Verdict) -> Verdict:
    """Return the first broken verdict, else the first that holds, else the first."""
    for state in ("broken", "holds"):
        for verdict in verdicts:
            if verdict.state == state:
                return verdict
    return verdicts[0]
