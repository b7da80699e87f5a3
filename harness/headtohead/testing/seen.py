"""The largest or least entry of a tensor, and where it was seen, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seen:
    """A number and the place where it was found."""

    number: float
    where: str


Words = Callable[[dict[str, int]], str]
"""Turns the place of an entry, by the names of its axes, into the beginning of a sentence."""

LOGITS = ("member", "sentence", "place", "word")


def largest(values: Tensor, axes: Sequence[str], words: Words) -> Seen:
    """Return the largest entry, NaN before all others; a tensor without entries has 0."""
    return _found(values, axes, words, largest_first=True)


def least(values: Tensor, axes: Sequence[str], words: Words) -> Seen:
    """Return the least entry, NaN before all others; a tensor without entries has infinity."""
    return _found(values, axes, words, largest_first=False)


def moved_logit(apart: Tensor, live: Tensor, doing: str) -> Seen:
    """Return the largest change of a live logit.

    Args:
        apart: ``[member, batch, time, vocab]``.
        live: Which places count, ``[member, batch, time]``.
        doing: What changed them, for example "adding padding".
    """
    return largest(apart.abs().where(live.unsqueeze(-1), 0.0), LOGITS, lambda at: f"{doing} moves {logit(at)}")


def logit(at: dict[str, int]) -> str:
    """Name a logit by member, sentence, place and word, as far as they are told."""
    text = f"the logit of word {at['word']} at place {at['place']}"
    if "sentence" in at:
        text += f" of sentence {at['sentence']}"
    return text + (f" of member {at['member']}" if at.get("member") else "")


def worst_of(found: Sequence[Seen], largest_first: bool = True) -> Seen:
    """Return the largest of several, or the least; NaN before all others."""
    for one in found:
        if one.number != one.number:
            return one
    return (max if largest_first else min)(found, key=lambda one: one.number)


def _found(values: Tensor, axes: Sequence[str], words: Words, largest_first: bool) -> Seen:
    if values.numel() == 0:
        return Seen(0.0 if largest_first else torch.inf, "")
    flat = values.detach().flatten()
    wrong = flat.isnan()
    index = int(wrong.long().argmax()) if bool(wrong.any()) else int(flat.argmax() if largest_first else flat.argmin())
    number = float(flat[index])
    place = {}
    for axis, size in reversed(list(zip(axes, values.shape, strict=True))):
        index, place[axis] = divmod(index, size)
    return Seen(number, f"{words(place)} by {number:.3g}")
