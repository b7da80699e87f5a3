"""Encodings that declare "falls-with-distance": on equal tokens, weights fall with distance."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply

STRICT = 1e-12


@invariant("falls-with-distance")
def weights_fall_strictly_with_distance(subject: Subject) -> Verdict:
    """On equal tokens, weights fall strictly with distance, in every visible direction."""
    roles = [role for role in subject.roles if subject.has_property(role, "falls-with-distance")]
    if not roles:
        return does_not_apply('the encoding does not declare "falls-with-distance"')
    plain = [role for role in roles if subject.uses_plain_softmax(role)]
    if not plain:
        return does_not_apply("the style's weights are not a plain softmax of the scores")
    fall = minimum_of([_smallest_fall(subject, role) for role in plain])
    return beyond(fall, f"{', '.join(plain)}: smallest fall of log weights per position", STRICT)


@torch.no_grad()
def _smallest_fall(subject: Subject, role: str) -> Extremum:
    x, memory = subject.activations(role)
    equal = x[:, :, :1].expand_as(x)
    memory = None if memory is None else memory[:, :, :1].expand_as(memory)
    recorded: dict[str, Tensor] = {}
    # Without a mask, the weights depend on the encoding alone.
    subject.attention(role)(equal, memory, subject.attention_context(role), None, recorded.__setitem__)
    weights = recorded["weights"].log()
    queries, keys = weights.shape[-2:]
    key_positions, query_positions = torch.arange(keys), torch.arange(queries)[:, None]
    rise = weights.diff(dim=-1)
    after = query_positions <= key_positions[:-1]
    # Later keys are hidden from a causal decoder.
    hidden = role in subject.target_key_roles and subject.hides("future", role)
    fall = torch.where(after, torch.inf if hidden else -rise, rise)
    return smallest(
        fall,
        ("member", "sentence", "head", "query", "key"),
        lambda at: (
            f"{role}: between keys {at['key']} and {at['key'] + 1}, for the query at position "
            f"{at['query']} in head {at['head']}, the log weight falls with distance"
        ),
    )
