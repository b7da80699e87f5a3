"""The largest or smallest entry of a tensor, with its position in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extremum:
    """An extreme entry and a sentence that describes where it is."""

    number: float
    description: str


Describe = Callable[[dict[str, int]], str]
"""Returns the beginning of a sentence from the indices of an entry, by axis name."""

LOGITS = ("member", "sentence", "position", "token")


def largest_number(values: Iterable[float]) -> float:
    """Return the largest number; NaN counts as largest, unlike in ``max``."""
    return float(torch.tensor(list(values), dtype=torch.float64).max())


def largest(values: Tensor, axes: Sequence[str], describe: Describe) -> Extremum:
    """Return the largest entry; NaN counts as largest, and an empty tensor has 0.

    Args:
        values: Of any shape.
        axes: Name of each axis of ``values``.
        describe: Called with the entry's index along each axis; " by <value>" is appended.
    """
    return _extremum(values, axes, describe, maximum=True)


def smallest(values: Tensor, axes: Sequence[str], describe: Describe) -> Extremum:
    """Return the smallest entry; NaN counts as smallest, and an empty tensor has infinity."""
    return _extremum(values, axes, describe, maximum=False)


def largest_logit_change(difference: Tensor, positions: Tensor, change: str) -> Extremum:
    """Return the largest change of a logit.

    Args:
        difference: ``[member, batch, time, vocab]``.
        positions: Which positions count, ``[member, batch, time]``.
        change: What changed them, for example "adding padding".
    """
    changes = difference.abs().where(positions.unsqueeze(-1), 0.0)
    return largest(changes, LOGITS, lambda at: f"{change} changes {logit(at)}")


def logit(at: dict[str, int]) -> str:
    """Return a logit in words: token and position, with sentence and member where they are given."""
    text = f"the logit of token {at['token']} at position {at['position']}"
    if "sentence" in at:
        text += f" of sentence {at['sentence']}"
    return text + (f" of member {at['member']}" if at.get("member") else "")


def maximum_of(extrema: Sequence[Extremum]) -> Extremum:
    """Return the extremum with the largest number; NaN counts as largest."""
    return _nan(extrema) or max(extrema, key=lambda extremum: extremum.number)


def minimum_of(extrema: Sequence[Extremum]) -> Extremum:
    """Return the extremum with the smallest number; NaN counts as smallest."""
    return _nan(extrema) or min(extrema, key=lambda extremum: extremum.number)


def _nan(extrema: Sequence[Extremum]) -> Extremum | None:
    return next((extremum for extremum in extrema if extremum.number != extremum.number), None)


def _extremum(values: Tensor, axes: Sequence[str], describe: Describe, maximum: bool) -> Extremum:
    if values.numel() == 0:
        return Extremum(0.0 if maximum else torch.inf, "")
    flat = values.detach().flatten()
    nan = flat.isnan()
    index = int(nan.long().argmax()) if bool(nan.any()) else int(flat.argmax() if maximum else flat.argmin())
    number = float(flat[index])
    at = {}
    for axis, size in reversed(list(zip(axes, values.shape, strict=True))):
        index, at[axis] = divmod(index, size)
    return Extremum(number, f"{describe(at)} by {number:.3g}")
