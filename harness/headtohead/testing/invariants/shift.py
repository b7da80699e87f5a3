"""Relative encodings: only differences of positions count."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.entry import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, outside, within, worst

SHIFT = 3


@invariant("joint-shift")
def a_joint_shift_changes_nothing(subject: Subject) -> Verdict:
    """Moving the positions of queries and keys alike changes nothing under relative encodings."""
    telling = [role for role in ROLES if not subject.promises(role, "order-blind")]
    return worst(*(_check(subject, role) for role in telling or ROLES))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    limit = type(positional).limit(positional.options)
    if limit is not None and limit < SHIFT + max(subject.times(role)):
        return does_not_apply(f"{role}: {limit} positions are too few to shift")
    number = _moved(subject, role)
    what = f"{role}: change of the output by a joint shift"
    if subject.promises(role, "relative"):
        return within(number, what)
    return outside(f"{role}: the encoding does not promise to be relative", number,
                   "a joint shift changes the output", EXACT)  # fmt: skip


@torch.no_grad()
def _moved(subject: Subject, role: str) -> float:
    attention, keep = subject.attention(role), subject.keep(role)
    x, memory = subject.activations(role)
    here = attention(x, memory, subject.view(role, keep=keep))
    there = attention(x, memory, subject.view(role, SHIFT, keep))
    places = torch.arange(subject.times(role)[0]).unsqueeze(0)
    positional = subject.positional(role)
    embedded = positional.embed(places, role), positional.embed(places + SHIFT, role)
    return max(float((here - there).abs().max()), _apart(*embedded))


def _apart(one: Tensor | None, other: Tensor | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else torch.inf
    return float((one - other).abs().max())
