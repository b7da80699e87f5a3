"""Large activations and sentences of one token give finite numbers."""

from __future__ import annotations

import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, Subject, attention_of, forward
from headtohead.testing.verdict import Verdict, within, worst

LARGE = 1000.0
"""Size of activations that an attention must handle in float32; exp overflows from 89."""


@invariant("finite")
def numbers_stay_finite(subject: Subject) -> Verdict:
    """Outputs and gradients are finite for one token, and in float32 for large activations."""
    single = Transformer(subject.config, subject.seeds, *subject.vocab_sizes).eval()
    single.load_state_dict(subject.model.state_dict())
    verdicts = [_large_activations(subject, single, role) for role in subject.roles]
    if subject.only_length is None:
        verdicts.append(_one_token(subject))
    return worst(*verdicts)


def _one_token(subject: Subject) -> Verdict:
    members = len(subject.seeds)
    ones = Lengths(((1,),) * members, ((1,),) * members)
    logits = forward(subject.model, subject.random_sentences(ones))
    gradients = torch.autograd.grad(
        logits.sum(), list(subject.model.parameters()), allow_unused=True, materialize_grads=True
    )
    return _all_finite((logits, *gradients), "non-finite logits and gradients of one source token and one target token")


def _large_activations(subject: Subject, model: Transformer, role: str) -> Verdict:
    attention = attention_of(model, role)
    x, memory = (None if value is None else (value * LARGE).float() for value in subject.activations(role))
    assert x is not None
    context = subject.attention_context(role, mask=subject.mask(role))
    tensors: list[torch.Tensor] = []
    for record in (None, lambda name, value: None):
        output = attention(x, memory, context, None, record)
        tensors.append(output.detach())
        if parameters := list(attention.parameters()):
            tensors += torch.autograd.grad(output.sum(), parameters, allow_unused=True, materialize_grads=True)
    return _all_finite(tuple(tensors), f"{role}: non-finite outputs and gradients at activations of size 1000")


def _all_finite(tensors: tuple[torch.Tensor, ...], quantity: str) -> Verdict:
    wrong = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    return within(float(wrong), quantity, 0.0, counterexample=f"{wrong} {quantity}")
