"""A query reads every key that its mask shows, and none that it hides, in each role by itself."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, largest, least
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, beyond, does_not_apply, within, worst

AXES = ("member", "sentence", "query", "key")


@invariant("shown-is-read")
def what_is_shown_is_read_and_what_is_hidden_is_not(subject: Subject) -> Verdict:
    """Changing a key changes what a query reads if the mask shows it, and only then."""
    return worst(*(_check(subject, role) for role in ROLES))


def _check(subject: Subject, role: str) -> Verdict:
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style masks what it reads itself")
    moved = _moved(subject, role)
    mask = subject.mask(role)
    other = torch.ones_like(mask)
    if subject.attention(role).self_attention:
        other = other & ~torch.eye(mask.shape[-1], dtype=torch.bool)
    alive = mask.any(-1, keepdim=True)

    def says(at: dict[str, int]) -> str:
        return f"{role}: changing key {at['key']} of sentence {at['sentence']} moves what query {at['query']} reads"

    hidden = largest(moved * (~mask & other & alive), AXES, says)
    shown = least(moved.where(mask & other, torch.inf), AXES, lambda at: says(at) + " at most")
    return worst(
        within(hidden, f"{role}: change of what is read by a key that is hidden"),
        beyond(_finite(shown), f"{role}: least change of what is read by a key that is shown", EXACT),
    )


def _finite(seen: Seen) -> Seen:
    """Leave out the infinity of a mask that shows nothing but a query itself."""
    return Seen(1.0, seen.where) if seen.number == torch.inf else seen


@torch.no_grad()
def _moved(subject: Subject, role: str) -> Tensor:
    """Return how much each key, changed in turn, moves each query, ``[m, b, query, key]``."""
    attention = subject.attention(role)
    x, memory = subject.activations(role)
    view = subject.view(role, mask=subject.mask(role))
    before = attention(x, memory, view)
    found = []
    for key in range(subject.times(role)[1]):
        read = (x if memory is None else memory).clone()
        read[:, :, key] = read[:, :, key].flip(-1) + 0.5
        after = attention(*((read, None) if memory is None else (x, read)), view)
        found.append((after - before).abs().amax(-1))
    return torch.stack(found, dim=-1)
