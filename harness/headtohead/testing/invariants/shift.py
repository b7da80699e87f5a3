"""Relative encodings: only differences of positions count, near the start and far from it."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, largest, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, outside, within, worst

SHIFTS = (3, 1000)


@invariant("joint-shift")
def a_joint_shift_changes_nothing(subject: Subject) -> Verdict:
    """Moving the positions of queries and keys alike changes nothing under relative encodings."""
    telling = [role for role in ROLES if not subject.properties(role, "order-invariant")]
    return worst(*(_check(subject, role) for role in telling or ROLES))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    if subject.position_dependent(role):
        return does_not_apply(f"{role}: the style has positions of its own")
    limit = type(positional).limit(positional.options)
    shifts = [one for one in SHIFTS if limit is None or limit >= one + max(subject.times(role))]
    if not shifts:
        return does_not_apply(f"{role}: {limit} positions are too few to shift")
    if subject.properties(role, "relative"):
        number = worst_of([_moved(subject, role, shift) for shift in shifts])
        return within(number, f"{role}: change of the output by a joint shift")
    return outside(
        f"{role}: the encoding does not promise to be relative",
        _moved(subject, role, SHIFTS[0]),
        "a joint shift changes the output",
        EXACT,
    )


@torch.no_grad()
def _moved(subject: Subject, role: str, shift: int) -> Seen:
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    here = attention(x, memory, subject.view(role, mask=mask))
    there = attention(x, memory, subject.view(role, shift, mask))
    moved = largest(
        (here - there).abs(),
        ("member", "sentence", "place", "coordinate"),
        lambda at: (
            f"{role}: moving all positions by {shift} moves coordinate {at['coordinate']} "
            f"of what place {at['place']} of sentence {at['sentence']} reads"
        ),
    )
    places = torch.arange(subject.times(role)[0]).unsqueeze(0)
    positional = subject.positional(role)
    embedded = _apart(positional.embed(places, role), positional.embed(places + shift, role))
    told = f"{role}: moving all positions by {shift} moves what is added to embeddings"
    return worst_of([moved, Seen(embedded, f"{told} by {embedded:.3g}")])


def _apart(one: Tensor | None, other: Tensor | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else torch.inf
    return float((one - other).abs().max())
