"""Recorded weights are a distribution where the style declares so, and times the values give the output."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.extremum import largest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, does_not_apply, within, worst

ROW = ("member", "sentence", "head", "query")


@invariant("rows-sum-to-one")
def rows_of_weights_sum_to_one(subject: Subject) -> Verdict:
    """Every row of weights with a visible key sums to one and is not negative, as the style declares."""
    roles = [role for role in subject.roles if subject.attention(role).style.weights != "signed"]
    if not roles:
        return does_not_apply('the style declares its weights "signed"')
    return worst(*(_check_rows(subject, role) for role in roles))


@invariant("weights-times-values")
def weights_times_values_are_the_output(subject: Subject) -> Verdict:
    """The recorded weights times the values give the output of the attention.

    The encoding's additions to the values, the style's ``post_heads`` and the output projection
    are applied as in the model.
    """
    return worst(*(_check_output(subject, role) for role in subject.roles))


def _check_rows(subject: Subject, role: str) -> Verdict:
    recorded, _ = _record(subject, role)
    weights = recorded["weights"]
    negative = largest(
        -weights, (*ROW, "key"), lambda at: f"{role}: {_row(at)} gives key {at['key']} a negative weight"
    )
    if not negative.number <= 0:
        return Verdict("violated", -negative.number, f"{role}: negative weight", counterexample=negative.description)
    if subject.attention(role).style.weights == "positive":
        return Verdict("holds", 0.0, f"{role}: negative weights")
    has_key = subject.mask(role).any(-1).unsqueeze(2).expand(weights.shape[:-1])
    deviation = ((weights.sum(-1) - 1) * has_key).abs()
    return within(
        largest(deviation, ROW, lambda at: f"{role}: the sum of the weights of {_row(at)} differs from one"),
        f"{role}: difference between row sums and one",
    )


def _row(at: dict[str, int]) -> str:
    return f"query {at['query']} in head {at['head']} of sentence {at['sentence']}"


@torch.no_grad()
def _check_output(subject: Subject, role: str) -> Verdict:
    recorded, output = _record(subject, role)
    attention, context = subject.attention(role), subject.attention_context(role, mask=subject.mask(role))
    weights, values = recorded["weights"], recorded["values"]
    group = weights.shape[2] // values.shape[2]
    heads = [weights[:, :, head] @ values[:, :, head // group] for head in range(weights.shape[2])]
    if attention.style.projects:
        products = torch.stack(heads, dim=2)
        added = subject.positional(role).values(
            weights, context.query_positions, context.key_positions, role, attention.context.layer or 0
        )
        processed = attention.style.post_heads(products if added is None else products + added)
        joined = torch.cat(list(processed.unbind(2)), dim=-1).flatten(1, 2)
        expected = attention.output(joined).view(output.shape)
    else:
        expected = torch.cat(heads, dim=-1)
    return within(
        largest(
            (output - expected).abs(),
            ("member", "sentence", "query", "coordinate"),
            lambda at: (
                f"{role}: the output of query {at['query']} of sentence {at['sentence']} differs from its "
                "weights times the values"
            ),
        ),
        f"{role}: difference between the output and weights times values",
    )


@torch.no_grad()
def _record(subject: Subject, role: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return the recorded tensors of an attention, and its output on the path that training uses."""
    x, memory = subject.activations(role)
    context = subject.attention_context(role, mask=subject.mask(role))
    recorded: dict[str, Tensor] = {}
    attention = subject.attention(role)
    attention(x, memory, context, None, recorded.__setitem__)
    return recorded, attention(x, memory, context)
