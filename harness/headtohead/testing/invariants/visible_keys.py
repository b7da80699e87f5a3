"""In each role, an output depends on every key that the mask shows and on no key that it hides."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, largest, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import EXACT, Verdict, beyond, does_not_apply, within, worst

AXES = ("member", "sentence", "query", "key")


@invariant("mask-obeyed")
def queries_depend_on_exactly_the_visible_keys(subject: Subject) -> Verdict:
    """Changing a key changes the output of a query if and only if the mask shows the key to it."""
    return worst(*(_check(subject, role) for role in subject.roles))


def _check(subject: Subject, role: str) -> Verdict:
    if not subject.attention(role).style.projects:
        return does_not_apply(f"{role}: the style masks its inputs itself")
    change = _output_changes(subject, role)
    mask = subject.mask(role)
    other = torch.ones_like(mask)
    if subject.attention(role).self_attention:
        other = other & ~torch.eye(mask.shape[-1], dtype=torch.bool)
    has_key = mask.any(-1, keepdim=True)

    def describe(at: dict[str, int]) -> str:
        return (
            f"{role}: changing key {at['key']} of sentence {at['sentence']} changes the output of query {at['query']}"
        )

    hidden = largest(change * (~mask & other & has_key), AXES, describe)
    visible = smallest(change.where(mask & other, torch.inf), AXES, lambda at: describe(at) + " at most")
    return worst(
        within(hidden, f"{role}: change of an output by a hidden key"),
        beyond(_finite(visible), f"{role}: smallest change of an output by a visible key", EXACT),
    )


def _finite(extremum: Extremum) -> Extremum:
    """Replace the infinity that results where a mask shows every query only its own key."""
    return Extremum(1.0, extremum.description) if extremum.number == torch.inf else extremum


@torch.no_grad()
def _output_changes(subject: Subject, role: str) -> Tensor:
    """Return the change of each output by changing each key, ``[member, batch, query, key]``."""
    attention = subject.attention(role)
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=subject.mask(role))
    before = attention(x, memory, context)
    changes = []
    for key in range(subject.times(role)[1]):
        inputs = (x if memory is None else memory).clone()
        inputs[:, :, key] = inputs[:, :, key].flip(-1) + 0.5
        after = attention(*((inputs, None) if memory is None else (x, inputs)), context)
        changes.append((after - before).abs().amax(-1))
    return torch.stack(changes, dim=-1)
