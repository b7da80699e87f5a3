"""Encodings that prefer what is near: on equal tokens, weights fall with distance."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.entry import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply

STRICT = 1e-12


@invariant("falls-with-distance")
def weights_fall_strictly_with_distance(subject: Subject) -> Verdict:
    """On flat content, weights fall strictly with distance, on both sides where both are seen."""
    roles = [role for role in ROLES if subject.promises(role, "falls-with-distance")]
    if not roles:
        return does_not_apply("the encoding does not promise to fall with distance")
    number = min(_smallest_fall(subject, role) for role in roles)
    return beyond(number, f"{', '.join(roles)}: smallest fall of log weights per step", STRICT)


@torch.no_grad()
def _smallest_fall(subject: Subject, role: str) -> float:
    x, memory = subject.activations(role)
    flat = x[:, :, :1].expand_as(x)
    memory = None if memory is None else memory[:, :, :1].expand_as(memory)
    seen: dict[str, Tensor] = {}
    subject.attention(role)(flat, memory, subject.view(role), None, seen.__setitem__)
    weights = seen["weights"].log()
    queries, keys = weights.shape[-2:]
    places, own = torch.arange(keys), torch.arange(queries)[:, None]
    rising = weights.diff(dim=-1)
    after = own <= places[:-1]
    falls = torch.where(after, -rising, rising)
    return float(falls.min())
