"""Positions act in every role whose encoding is not order-invariant, and in no other role.

The check uses a single attention, so that no other layer, role or mask contributes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, largest, maximum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import VISIBLE, Verdict, beyond, does_not_apply, within, worst

MAX_POSITIONS = 64
"""Largest number of positions with compared vectors."""

AXES = ("member", "sentence", "query")


@invariant("positions-act")
def positions_act_in_every_role(subject: Subject) -> Verdict:
    """Swapping adjacent keys changes the output if and only if positions are encoded."""
    return worst(*(_check(subject, role) for role in subject.roles))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style has no scores")
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    order_invariant = subject.has_property(role, "order-invariant") and not subject.position_dependent(role)
    change, checked = _swap_adjacent_keys(subject, role)
    embedded = _embedded_difference(subject, role)
    if order_invariant:
        largest_change = maximum_of(
            [_largest_change(change, role), Extremum(embedded, f"{role}: {embedded:.3g} is added to embeddings")]
        )
        return within(largest_change, f"{role}: change by swapping two keys under an order-invariant encoding")
    if embedded > VISIBLE and not subject.position_dependent(role):
        return Verdict("holds", embedded, f"{role}: smallest difference between the vectors of two positions")
    if not bool(checked.any()):
        return does_not_apply(f"{role}: no query attends to two adjacent keys")
    # With clipped distances, a swap may have no effect on some queries, but never on all of them.
    per_member = change.where(checked, 0.0).flatten(1).amax(-1)
    return beyond(
        smallest(
            per_member,
            ("member",),
            lambda at: (
                f"{role}: swapping adjacent keys changes the output of any query of member {at['member']} at most"
            ),
        ),
        f"{role}: largest change of an output by swapping two adjacent keys",
    )


def _largest_change(change: Tensor, role: str) -> Extremum:
    return largest(
        change,
        AXES,
        lambda at: f"{role}: swapping two keys changes the output of query {at['query']} of sentence {at['sentence']}",
    )


@torch.no_grad()
def _swap_adjacent_keys(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return the largest change of each output, and which queries attend to two adjacent keys.

    Both ``[member, batch, query]``.
    """
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=mask)
    before = attention(x, memory, context)
    largest_change = torch.zeros(mask.shape[:3], dtype=torch.float64)
    checked = torch.zeros_like(largest_change, dtype=torch.bool)
    queries = torch.arange(mask.shape[2])
    for key in range(mask.shape[3] - 1):
        order = torch.arange(mask.shape[3])
        order[[key, key + 1]] = order[[key + 1, key]]
        swapped = (x if memory is None else memory)[:, :, order]
        after = attention(*((swapped, None) if memory is None else (x, swapped)), context)
        visible = mask[..., key] & mask[..., key + 1]
        if memory is None:
            visible = visible & (queries != key) & (queries != key + 1)
        if role == "decoder":
            # An encoding for decoders need not distinguish later keys.
            visible = visible & (queries > key + 1)
        change = (after - before).abs().amax(-1)
        largest_change = torch.maximum(largest_change, change.where(visible, 0.0))
        checked |= visible
    return largest_change, checked


@torch.no_grad()
def _embedded_difference(subject: Subject, role: str) -> float:
    """Return the smallest distance between the vectors that two positions add to embeddings.

    For an order-invariant encoding: the largest entry of such a vector, which must be zero.
    """
    positional = subject.positional(role)
    limit = type(positional).limit(positional.options) or MAX_POSITIONS
    count = min(MAX_POSITIONS, limit)
    table = positional.embed(torch.arange(count).unsqueeze(0), role)
    if table is None:
        return 0.0
    rows = table.expand(-1, -1, count, -1).double().flatten(0, 1)
    if subject.has_property(role, "order-invariant"):
        return float(rows.abs().max())
    distances = torch.cdist(rows, rows) + torch.eye(rows.shape[1]) * 1e9
    return float(distances.min())
