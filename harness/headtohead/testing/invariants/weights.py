"""The weights that are shown are the weights that act."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.attention import Attention
from headtohead.families.entry import ROLES
from headtohead.families.positional import Positional
from headtohead.model.attention import overrides
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, does_not_apply, within, worst


@invariant("rows-sum-to-one")
def rows_of_weights_sum_to_one(subject: Subject) -> Verdict:
    """Every row of softmax weights that keeps a key sums to one and has no negative weight."""
    roles = [
        role for role in ROLES if not overrides(subject.attention(role).style, Attention, "mix")
    ]
    if not roles:
        return does_not_apply("the style mixes the weights of its heads")
    return worst(*(_rows(subject, role) for role in roles))


@invariant("weights-act")
def weights_times_values_are_the_output(subject: Subject) -> Verdict:
    """The weights that are shown, times the values, give the output of the attention."""
    return worst(*(_act(subject, role) for role in ROLES))


def _rows(subject: Subject, role: str) -> Verdict:
    seen, _ = _record(subject, role)
    weights = seen["weights"]
    if bool((weights < 0).any()):
        return Verdict("broken", float(weights.min()), f"{role}: a weight is negative")
    alive = subject.keep(role).any(-1).unsqueeze(2).expand(weights.shape[:-1])
    return within(
        float((weights.sum(-1) - 1)[alive].abs().max()), f"{role}: distance of row sums from one"
    )


@torch.no_grad()
def _act(subject: Subject, role: str) -> Verdict:
    if overrides(subject.positional(role), Positional, "values"):
        return does_not_apply(f"{role}: the encoding adds values of its own to the output")
    seen, output = _record(subject, role)
    attention = subject.attention(role)
    geometry = attention.context.geometry
    group = geometry.heads // geometry.kv_heads
    heads = [
        seen["weights"][:, :, head] @ seen["values"][:, :, head // group]
        for head in range(geometry.heads)
    ]
    expected = torch.cat(heads, dim=-1)
    if attention.style.projects:
        expected = attention.output(expected.flatten(1, 2)).view(output.shape)
    return within(
        float((output - expected).abs().max()),
        f"{role}: difference of output and weights times values",
    )


@torch.no_grad()
def _record(subject: Subject, role: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return what an attention shows, and its output as training computes it."""
    x, memory = subject.activations(role)
    view = subject.view(role, keep=subject.keep(role))
    seen: dict[str, Tensor] = {}
    attention = subject.attention(role)
    attention(x, memory, view, None, seen.__setitem__)
    return seen, attention(x, memory, view)
