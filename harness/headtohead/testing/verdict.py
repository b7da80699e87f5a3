"""Verdict of an invariant on one variant: it holds, is violated, or does not apply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

State = Literal["holds", "violated", "does not apply"]

EXACT = 1e-9
"""Largest float64 difference between two computations that are equal in exact arithmetic."""

VISIBLE = 1e-6
"""Smallest difference that counts as a change."""

LOGITS = ("member", "sentence", "position", "token")


@dataclass(frozen=True)
class Verdict:
    """Outcome of one check.

    Attributes:
        state: Whether the invariant holds, is violated, or does not apply.
        number: The measured value, None where nothing was measured.
        reason: What was measured, or why the invariant does not apply.
        cause: Setting with a known violation of this invariant, None where the violation is unexpected.
        counterexample: Member, sentence and position of a violation, with the measured value.
        error: The error that the entry raised, with its location; then the state is "violated".
    """

    state: State
    number: float | None
    reason: str
    cause: str | None = None
    counterexample: str | None = None
    error: str | None = None

    @property
    def outcome(self) -> str:
        """The state, or "known violation" where a setting has this known violation."""
        return "known violation" if self.state == "violated" and self.cause is not None else self.state

    def in_role(self, role: str) -> Verdict:
        """Return the verdict with the attention role that it is about."""
        example = None if self.counterexample is None else f"{role}: {self.counterexample}"
        return replace(self, reason=f"{role}: {self.reason}", counterexample=example)

    def __str__(self) -> str:
        number = "" if self.number is None else f" [{self.number:.3g}]"
        cause = "" if self.cause is None else f"; known violation of {self.cause}"
        return f"{self.state}: {self.reason}{number}{cause}"


@dataclass(frozen=True)
class Extremum:
    """An extreme number and a sentence that describes where it was measured."""

    number: float
    description: str


def largest(values: Tensor, axes: Sequence[str], text: str) -> Extremum:
    """Return the largest entry; NaN counts as largest, and an empty tensor has 0.

    Args:
        values: Of any shape.
        axes: Name of each axis of ``values``.
        text: Template of the description: ``{query}`` is the entry's index along the axis "query"; " by <value>" is
            appended.
    """
    return _extremum(values, axes, text, maximum=True)


def smallest(values: Tensor, axes: Sequence[str], text: str) -> Extremum:
    """Return the smallest entry; NaN counts as smallest, and an empty tensor has infinity."""
    return _extremum(values, axes, text, maximum=False)


def largest_logit_change(difference: Tensor, positions: Tensor, change: str) -> Extremum:
    """Return the largest change of a logit.

    Args:
        difference: ``[member, batch, time, vocab]``.
        positions: Which positions count, ``[member, batch, time]``.
        change: What changed them, for example "adding padding".
    """
    changes = difference.abs().where(positions.unsqueeze(-1), 0.0)
    where = "position {position} of sentence {sentence} of member {member}"
    return largest(changes, LOGITS, f"{change} changes the logit of token {{token}} at {where}")


def largest_number(values: Iterable[float]) -> float:
    """Return the largest number; NaN counts as largest, unlike in ``max``."""
    return float(torch.tensor(list(values), dtype=torch.float64).max())


def maximum_of(extrema: Sequence[Extremum]) -> Extremum:
    """Return the extremum with the largest number; NaN counts as largest."""
    return max(extrema, key=lambda extremum: (extremum.number != extremum.number, extremum.number))


def minimum_of(extrema: Sequence[Extremum]) -> Extremum:
    """Return the extremum with the smallest number; NaN counts as smallest."""
    return min(extrema, key=lambda extremum: (extremum.number == extremum.number, extremum.number))


def violated(reason: str, number: float | None = None) -> Verdict:
    """Return a violation that ``reason`` describes completely."""
    return Verdict("violated", number, reason, counterexample=reason)


def within(measured: float | Extremum, quantity: str, bound: float = EXACT) -> Verdict:
    """Return "holds" if a number is at most ``bound``, else "violated"; NaN is a violation.

    Args:
        measured: The number; an `Extremum` has its own counterexample.
        quantity: Name of the measured value, for example "change of logits by added padding".
        bound: Largest permitted value.
    """
    number = measured.number if isinstance(measured, Extremum) else measured
    return _bounded(measured, quantity, number <= bound, f"at most {bound:.0e}")


def beyond(measured: float | Extremum, quantity: str, bound: float = VISIBLE) -> Verdict:
    """Return "holds" if a number is at least ``bound``, else "violated"; NaN is a violation.

    For quantities that must change. The arguments are those of `within`.
    """
    number = measured.number if isinstance(measured, Extremum) else measured
    return _bounded(measured, quantity, number >= bound, f"at least {bound:.0e}")


def outside(reason: str, measured: float | Extremum, predicted: str, bound: float = VISIBLE) -> Verdict:
    """Return "does not apply" if the predicted failure is measured, else "violated".

    Args:
        reason: Why the variant is outside the invariant's domain.
        measured: Size of the predicted failure.
        predicted: The failure in words, for example "later tokens change earlier logits".
        bound: Smallest size that counts as a failure.
    """
    number = measured.number if isinstance(measured, Extremum) else measured
    if number >= bound:
        return Verdict("does not apply", number, f"{reason}; as predicted, {predicted}")
    return violated(f"{reason}; expected, but not measured: {predicted}", number)


def does_not_apply(reason: str) -> Verdict:
    """Return "does not apply" with its reason; nothing was measured."""
    return Verdict("does not apply", None, reason)


def worst(*verdicts: Verdict) -> Verdict:
    """Return the first violation, else the first verdict that holds, else the first verdict."""
    order = ("violated", "holds", "does not apply")
    return min(verdicts, key=lambda verdict: order.index(verdict.state))


def _bounded(measured: float | Extremum, quantity: str, holds: bool, expected: str) -> Verdict:
    if not isinstance(measured, Extremum):
        measured = Extremum(measured, f"{quantity} is {measured:.3g}")
    if holds:
        return Verdict("holds", measured.number, quantity)
    reason = f"expected {expected}: {quantity}"
    return Verdict("violated", measured.number, reason, counterexample=measured.description)


def _extremum(values: Tensor, axes: Sequence[str], text: str, maximum: bool) -> Extremum:
    if values.numel() == 0:
        return Extremum(0.0 if maximum else torch.inf, "")
    flat = values.detach().flatten()
    nan = flat.isnan()
    index = int(nan.long().argmax()) if bool(nan.any()) else int(flat.argmax() if maximum else flat.argmin())
    at = dict(zip(axes, (int(place) for place in torch.unravel_index(torch.tensor(index), values.shape)), strict=True))
    number = float(flat[index])
    return Extremum(number, f"{text.format(**at)} by {number:.3g}")
