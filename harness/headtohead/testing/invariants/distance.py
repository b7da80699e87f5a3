"""Encodings that prefer what is near: on equal tokens, weights fall with distance."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, least, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply

STRICT = 1e-12


@invariant("falls-with-distance")
def weights_fall_strictly_with_distance(subject: Subject) -> Verdict:
    """On flat content, weights fall strictly with distance, on both sides where both are seen."""
    roles = [role for role in ROLES if subject.properties(role, "falls-with-distance")]
    if not roles:
        return does_not_apply("the encoding does not promise to fall with distance")
    plain = [role for role in roles if subject.is_plain(role)]
    if not plain:
        return does_not_apply("weights follow scores in the style's own way")
    found = worst_of([_smallest_fall(subject, role) for role in plain], largest_first=False)
    return beyond(found, f"{', '.join(plain)}: smallest fall of log weights per step", STRICT)


@torch.no_grad()
def _smallest_fall(subject: Subject, role: str) -> Seen:
    x, memory = subject.activations(role)
    flat = x[:, :, :1].expand_as(x)
    memory = None if memory is None else memory[:, :, :1].expand_as(memory)
    seen: dict[str, Tensor] = {}
    # Nothing is masked for this question; the encoding alone is asked.
    subject.attention(role)(flat, memory, subject.view(role), None, seen.__setitem__)
    weights = seen["weights"].log()
    queries, keys = weights.shape[-2:]
    places, own = torch.arange(keys), torch.arange(queries)[:, None]
    rising = weights.diff(dim=-1)
    after = own <= places[:-1]
    # A decoder never reads on that side.
    falls = torch.where(after, torch.inf if _hides_later(subject, role) else -rising, rising)
    return least(
        falls,
        ("member", "sentence", "head", "query", "key"),
        lambda at: (
            f"{role}: from key {at['key']} to {at['key'] + 1}, seen from place "
            f"{at['query']} in head {at['head']}, the log weight falls towards far keys"
        ),
    )


def _hides_later(subject: Subject, role: str) -> bool:
    return role in subject.reading_target and subject.hides("future", role)
