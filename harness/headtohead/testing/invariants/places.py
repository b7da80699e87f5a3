"""Positions act in every role they are chosen for, and nowhere else.

Asked of a single attention, so that no other layer, role or mask can speak for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, largest, least, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import VISIBLE, Verdict, beyond, does_not_apply, within, worst

PLACES = 64
"""Places whose vectors are compared, or fewer where the encoding has fewer."""

AXES = ("member", "sentence", "query")


@invariant("places-act")
def places_act_in_every_role(subject: Subject) -> Verdict:
    """Exchanging two neighbouring keys changes what is read, exactly where places are told."""
    return worst(*(_check(subject, role) for role in ROLES))


def _check(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style has no scores")
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    blind = subject.properties(role, "order-invariant") and not subject.position_dependent(role)
    moved, asked = _exchanged(subject, role)
    told = _told(subject, role)
    if blind:
        most = worst_of([_most(moved, role), Seen(told, f"{role}: {told:.3g} is added")])
        return within(most, f"{role}: change by exchanging two keys without any places")
    if told > VISIBLE and not subject.position_dependent(role):
        return Verdict("holds", told, f"{role}: least difference of two places' vectors")
    if not bool(asked.any()):
        return does_not_apply(f"{role}: no query sees two neighbours")
    # A clipped distance may hide the places from some queries, never from all.
    heard = moved.where(asked, 0.0).flatten(1).amax(-1)
    return beyond(
        least(
            heard,
            ("member",),
            lambda at: (
                f"{role}: exchanging any two neighbouring keys moves "
                f"what any query of member {at['member']} reads at most"
            ),
        ),
        f"{role}: largest change of what is read by exchanging two keys",
    )


def _most(moved: Tensor, role: str) -> Seen:
    return largest(
        moved,
        AXES,
        lambda at: f"{role}: exchanging two keys moves what query {at['query']} of sentence {at['sentence']} reads",
    )


@torch.no_grad()
def _exchanged(subject: Subject, role: str) -> tuple[Tensor, Tensor]:
    """Return the largest change by exchanging neighbours, and which queries see such.

    Both ``[member, batch, query]``.
    """
    attention, mask = subject.attention(role), subject.mask(role)
    x, memory = subject.activations(role)
    view = subject.view(role, mask=mask)
    before = attention(x, memory, view)
    most = torch.zeros(mask.shape[:3], dtype=torch.float64)
    asked = torch.zeros_like(most, dtype=torch.bool)
    queries = torch.arange(mask.shape[2])
    for key in range(mask.shape[3] - 1):
        order = torch.arange(mask.shape[3])
        order[[key, key + 1]] = order[[key + 1, key]]
        read = (x if memory is None else memory)[:, :, order]
        after = attention(*((read, None) if memory is None else (x, read)), view)
        both = mask[..., key] & mask[..., key + 1]
        if memory is None:
            both = both & (queries != key) & (queries != key + 1)
        if role == "decoder":
            # An encoding made for a decoder need not tell later keys apart.
            both = both & (queries > key + 1)
        moved = (after - before).abs().amax(-1)
        most = torch.maximum(most, moved.where(both, 0.0))
        asked |= both
    return most, asked


@torch.no_grad()
def _told(subject: Subject, role: str) -> float:
    """Return the least difference of what two places have added to embeddings."""
    positional = subject.positional(role)
    limit = type(positional).limit(positional.options) or PLACES
    table = positional.embed(torch.arange(min(PLACES, limit)).unsqueeze(0), role)
    if table is None:
        return 0.0
    rows = table.expand(-1, -1, min(PLACES, limit), -1).double().flatten(0, 1)
    apart = torch.cdist(rows, rows) + torch.eye(rows.shape[1]) * 1e9
    if subject.properties(role, "order-invariant"):
        return float(rows.abs().max())
    return float(apart.min())
