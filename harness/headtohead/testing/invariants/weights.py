"""The weights that are shown are the weights that act, and are what the style says they are."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import largest
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, does_not_apply, within, worst

ROW = ("member", "sentence", "head", "query")


@invariant("rows-sum-to-one")
def rows_of_weights_sum_to_one(subject: Subject) -> Verdict:
    """Every row of weights that keeps a key sums to one if it is to, and is negative nowhere."""
    roles = [role for role in ROLES if subject.attention(role).style.weights != "signed"]
    if not roles:
        return does_not_apply("weights are of either sign, by the style's own word")
    return worst(*(_rows(subject, role) for role in roles))


@invariant("weights-act")
def weights_times_values_are_the_output(subject: Subject) -> Verdict:
    """The weights that are shown, times the values, give the output of the attention.

    Behind them stand what an encoding adds to values, the style's ``finish`` and the projection.
    """
    return worst(*(_act(subject, role) for role in ROLES))


def _rows(subject: Subject, role: str) -> Verdict:
    seen, _ = _record(subject, role)
    weights = seen["weights"]
    below = largest(
        -weights, (*ROW, "key"), lambda at: f"{role}: {_place(at)} gives key {at['key']} a weight below zero,"
    )
    if not below.number <= 0:
        return Verdict("broken", -below.number, f"{role}: a weight is negative", shown=below.where)
    if subject.attention(role).style.weights == "positive":
        return Verdict("holds", 0.0, f"{role}: no weight is negative")
    alive = subject.mask(role).any(-1).unsqueeze(2).expand(weights.shape[:-1])
    off = ((weights.sum(-1) - 1) * alive).abs()
    return within(
        largest(off, ROW, lambda at: f"{role}: weights of {_place(at)} sum to something off one"),
        f"{role}: distance of row sums from one",
    )


def _place(at: dict[str, int]) -> str:
    return f"query {at['query']} in head {at['head']} of sentence {at['sentence']}"


@torch.no_grad()
def _act(subject: Subject, role: str) -> Verdict:
    seen, output = _record(subject, role)
    attention, view = subject.attention(role), subject.view(role, mask=subject.mask(role))
    group = seen["weights"].shape[2] // seen["values"].shape[2]
    heads = [
        seen["weights"][:, :, head] @ seen["values"][:, :, head // group] for head in range(seen["weights"].shape[2])
    ]
    read = torch.stack(heads, dim=2)
    if attention.style.projects:
        added = subject.positional(role).values(
            seen["weights"], view.query_positions, view.key_positions, role, attention.context.layer or 0
        )
        finished = attention.style.post_heads(read if added is None else read + added)
        joined = torch.cat(list(finished.unbind(2)), dim=-1).flatten(1, 2)
        expected = attention.output(joined).view(output.shape)
    else:
        expected = torch.cat(heads, dim=-1)
    return within(
        largest(
            (output - expected).abs(),
            ("member", "sentence", "query", "coordinate"),
            lambda at: (
                f"{role}: what query {at['query']} of sentence {at['sentence']} reads is "
                "not its weights times the values: it is off"
            ),
        ),
        f"{role}: difference of output and weights times values",
    )


@torch.no_grad()
def _record(subject: Subject, role: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return what an attention shows, and its output as training computes it."""
    x, memory = subject.activations(role)
    view = subject.view(role, mask=subject.mask(role))
    seen: dict[str, Tensor] = {}
    attention = subject.attention(role)
    attention(x, memory, view, None, seen.__setitem__)
    return seen, attention(x, memory, view)
