"""Verdict of an invariant on one variant: it holds, is violated, or does not apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headtohead.testing.extremum import Extremum

State = Literal["holds", "violated", "does not apply"]

EXACT = 1e-9
"""Largest float64 difference between two computations that are equal in exact arithmetic."""

VISIBLE = 1e-6
"""Smallest difference that counts as a change."""


@dataclass(frozen=True)
class Verdict:
    """Outcome of one check.

    Attributes:
        state: Whether the invariant holds, is violated, or does not apply.
        number: The measured value, None where nothing was measured.
        reason: What was measured, or why the invariant does not apply.
        cause: Setting with a known violation of this invariant, None where the violation is unexpected.
        counterexample: Member, sentence and position of a violation, with the measured value.
    """

    state: State
    number: float | None
    reason: str
    cause: str | None = None
    counterexample: str | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f" [{self.number:.3g}]"
        cause = "" if self.cause is None else f"; known violation of {self.cause}"
        return f"{self.state}: {self.reason}{number}{cause}"


def violated(reason: str, number: float | None = None) -> Verdict:
    """Return a violation that ``reason`` describes completely."""
    return Verdict("violated", number, reason, counterexample=reason)


def within(number: float | Extremum, quantity: str, bound: float = EXACT, counterexample: str | None = None) -> Verdict:
    """Return "holds" if ``number`` is at most ``bound``, else "violated"; NaN is a violation.

    Args:
        number: The measured value; an `Extremum` brings its own counterexample.
        quantity: Name of the measured value, for example "change of logits by added padding".
        bound: Largest permitted value.
        counterexample: Where the value was measured; by default the quantity and its value.
    """
    if isinstance(number, Extremum):
        counterexample, number = number.description, number.number
    if number <= bound:
        return Verdict("holds", number, quantity)
    counterexample = counterexample or f"{quantity} is {number:.3g}"
    return Verdict("violated", number, f"expected at most {bound:.0e}: {quantity}", counterexample=counterexample)


def beyond(number: float | Extremum, quantity: str, bound: float = VISIBLE) -> Verdict:
    """Return "holds" if ``number`` is at least ``bound``, else "violated"; NaN is a violation.

    For quantities that must change. The arguments are those of `within`.
    """
    counterexample = None
    if isinstance(number, Extremum):
        counterexample, number = number.description, number.number
    if number >= bound:
        return Verdict("holds", number, quantity)
    counterexample = counterexample or f"{quantity} is {number:.3g}"
    return Verdict("violated", number, f"expected at least {bound:.0e}: {quantity}", counterexample=counterexample)


def outside(reason: str, number: float | Extremum, predicted: str, bound: float = VISIBLE) -> Verdict:
    """Return "does not apply" if the predicted failure is measured, else "violated".

    Args:
        reason: Why the variant is outside the invariant's domain.
        number: Size of the predicted failure.
        predicted: The failure in words, for example "later tokens change earlier logits".
        bound: Smallest size that counts as a failure.
    """
    if isinstance(number, Extremum):
        number = number.number
    if number >= bound:
        return Verdict("does not apply", number, f"{reason}; as predicted, {predicted}")
    return violated(f"{reason}; expected, but not measured: {predicted}", number)


def does_not_apply(reason: str) -> Verdict:
    """Return "does not apply" with its reason; nothing was measured."""
    return Verdict("does not apply", None, reason)


def worst(*verdicts: Verdict) -> Verdict:
    """Return the first violation, else the first verdict that holds, else the first verdict."""
    for state in ("violated", "holds"):
        for verdict in verdicts:
            if verdict.state == state:
                return verdict
    return verdicts[0]
