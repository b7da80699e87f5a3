"""Relative encodings: only differences of positions matter, at small and large positions."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, largest, maximum_of
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, outside, within, worst

SHIFTS = (3, 1000)


@invariant("joint-shift")
def a_joint_shift_changes_nothing(subject: Subject) -> Verdict:
    """Shifting the positions of queries and keys together changes nothing under relative encodings."""
    encoded = [role for role in subject.roles if not subject.has_property(role, "order-invariant")]
    return worst(*(_check(subject, role) for role in encoded or subject.roles))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    if subject.position_dependent(role):
        return does_not_apply(f"{role}: the style's own scores depend on positions")
    limit = type(positional).limit(positional.options)
    shifts = [shift for shift in SHIFTS if limit is None or limit >= shift + max(subject.times(role))]
    if not shifts:
        return does_not_apply(f"{role}: {limit} positions are too few to shift")
    if subject.has_property(role, "relative"):
        change = maximum_of([_largest_change(subject, role, shift) for shift in shifts])
        return within(change, f"{role}: change of the output by a joint shift")
    return outside(
        f'{role}: the encoding does not declare "relative"',
        _largest_change(subject, role, SHIFTS[0]),
        "a joint shift changes the output",
        EXACT,
    )


@torch.no_grad()
def _largest_change(subject: Subject, role: str, shift: int) -> Extremum:
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    original = attention(x, memory, subject.attention_context(role, mask=mask))
    shifted = attention(x, memory, subject.attention_context(role, shift, mask))
    action = f"{role}: shifting all positions by {shift} changes"
    output = largest(
        (original - shifted).abs(),
        ("member", "sentence", "query", "coordinate"),
        lambda at: (
            f"{action} coordinate {at['coordinate']} of the output of query {at['query']} of sentence {at['sentence']}"
        ),
    )
    positions = torch.arange(subject.times(role)[0]).unsqueeze(0)
    positional = subject.positional(role)
    embedded = _difference(positional.embed(positions, role), positional.embed(positions + shift, role))
    return maximum_of([output, Extremum(embedded, f"{action} the vectors added to embeddings by {embedded:.3g}")])


def _difference(first: Tensor | None, second: Tensor | None) -> float:
    if first is None or second is None:
        return 0.0 if first is second else torch.inf
    return float((first - second).abs().max())
