"""Verdict of an invariant on one variant: it holds, is violated, or does not apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

State = Literal["holds", "violated", "does not apply"]
Measured = Tensor | float | Sequence[float]
"""A number, or numbers of which the extreme one counts."""

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
        is_undeclared: Whether the variant only has no effect where it should have one, or a property that it does
            not declare, which makes no score wrong.
    """

    state: State
    number: float | None
    reason: str
    cause: str | None = None
    counterexample: str | None = None
    error: str | None = None
    is_undeclared: bool = False

    @property
    def outcome(self) -> str:
        """The state, or "known violation" where a setting has this known violation."""
        if self.state == "violated" and self.cause is not None:
            return "known violation"
        return self.state

    def in_role(self, role: str) -> Verdict:
        """Return the verdict with the attention role that it is about."""
        reason = f"{role}: {self.reason}"
        if self.counterexample is None:
            return replace(self, reason=reason)
        return replace(self, reason=reason, counterexample=f"{role}: {self.counterexample}")

    def __str__(self) -> str:
        text = f"{self.state}: {self.reason}"
        if self.number is not None:
            text += f" [{self.number:.3g}]"
        if self.cause is not None:
            text += f"; known violation of {self.cause}"
        return text


def logit_changes(difference: Tensor, positions: Tensor) -> Tensor:
    """Return the absolute differences of logits ``[member, batch, time, vocab]``, zero except at some positions."""
    return difference.abs().where(positions.unsqueeze(-1), 0.0)


def violated(reason: str, number: float | None = None) -> Verdict:
    """Return a violation that ``reason`` describes completely."""
    return Verdict("violated", number, reason, counterexample=reason)


def within(
    measured: Measured, quantity: str, axes: Sequence[str] = (), bound: float = EXACT
) -> Verdict:
    """Return "holds" if the largest number is at most ``bound``, else "violated"; NaN is a violation.

    Args:
        measured: Without numbers, the largest is 0.
        quantity: Name of the measured value, for example "change of logits by added padding".
        axes: Names of the axes of ``measured``, for the counterexample.
        bound: Largest permitted value.
    """
    values = torch.as_tensor(measured, dtype=torch.float64).detach()
    if not values.numel():
        return Verdict("holds", 0.0, quantity)
    index = values.argmax()
    number = float(values.flatten()[index])
    if number <= bound:
        return Verdict("holds", number, quantity)
    example = f"{quantity} is {number:.3g}{_place(index, values.shape, axes)}"
    reason = f"expected at most {bound:.0e}: {quantity}"
    return Verdict("violated", number, reason, counterexample=example)


def beyond(
    measured: Measured, quantity: str, axes: Sequence[str] = (), bound: float = VISIBLE
) -> Verdict:
    """Return "holds" if the smallest number is at least ``bound``, else "violated"; NaN is a violation.

    For quantities that must change. The arguments are those of `within`; without numbers, the smallest is infinite.
    """
    values = torch.as_tensor(measured, dtype=torch.float64).detach()
    if not values.numel():
        return Verdict("holds", torch.inf, quantity)
    index = values.argmin()
    number = float(values.flatten()[index])
    if number >= bound:
        return Verdict("holds", number, quantity)
    example = f"{quantity} is {number:.3g}{_place(index, values.shape, axes)}"
    reason = f"expected at least {bound:.0e}: {quantity}"
    return Verdict("violated", number, reason, counterexample=example, is_undeclared=True)


def outside(reason: str, measured: Measured, predicted: str, bound: float = VISIBLE) -> Verdict:
    """Return "does not apply" if the predicted failure is measured, else "violated".

    Args:
        reason: Why the variant is outside the invariant's domain.
        measured: Size of the predicted failure; the largest number counts.
        predicted: The failure in words, for example "later tokens change earlier logits".
        bound: Smallest size that counts as a failure.
    """
    number = float(torch.as_tensor(measured, dtype=torch.float64).max())
    if number >= bound:
        return Verdict("does not apply", number, f"{reason}; as predicted, {predicted}")
    verdict = violated(f"{reason}; expected, but not measured: {predicted}", number)
    return replace(verdict, is_undeclared=True)


def does_not_apply(reason: str) -> Verdict:
    """Return "does not apply" with its reason; nothing was measured."""
    return Verdict("does not apply", None, reason)


def worst(*verdicts: Verdict) -> Verdict:
    """Return the first violation, else the first verdict that holds, else the first verdict.

    A property that is only undeclared is the least of the violations.
    """
    order = ("violated", "holds", "does not apply")
    return min(verdicts, key=lambda verdict: (order.index(verdict.state), verdict.is_undeclared))


def _place(index: Tensor, shape: torch.Size, axes: Sequence[str]) -> str:
    """Return the place of an element in words, such as " at member 0, position 3"; empty without names of axes."""
    if not axes:
        return ""
    coordinates = torch.unravel_index(index, shape)
    named = [f"{axis} {int(at)}" for axis, at in zip(axes, coordinates, strict=True)]
    return f" at {', '.join(named)}"
