"""Nothing overflows where numbers are large, and nothing divides by what one token lacks."""

from __future__ import annotations

import torch

from headtohead.model.transformer import Transformer
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, Subject, attention_of, forward
from headtohead.testing.verdict import Verdict, within, worst

LARGE = 1000.0
"""Size of activations that an attention in float32 must bear; exp overflows from 89 on."""


@invariant("finite")
def numbers_stay_finite(subject: Subject) -> Verdict:
    """Outputs and gradients are finite for one token, and in float32 for large activations."""
    single = Transformer(subject.config, subject.seeds, *subject.words).eval()
    single.load_state_dict(subject.model.state_dict())
    verdicts = [_large(subject, single, role) for role in ROLES]
    if subject.only_length is None:
        verdicts.append(_short(subject))
    return worst(*verdicts)


def _short(subject: Subject) -> Verdict:
    members = len(subject.seeds)
    ones = Lengths(((1,),) * members, ((1,),) * members)
    logits = forward(subject.model, subject.draw_sentences(ones))
    gradients = torch.autograd.grad(
        logits.sum(), list(subject.model.parameters()), allow_unused=True, materialize_grads=True
    )
    wrong = sum(int((~one.isfinite()).sum()) for one in (logits, *gradients))
    what = "logits and gradients of one source word and one target token that are not finite"
    return within(float(wrong), what, 0.0, shown=f"{wrong} {what}")


def _large(subject: Subject, model: Transformer, role: str) -> Verdict:
    attention = attention_of(model, role)
    x, memory = (None if one is None else (one * LARGE).float() for one in subject.activations(role))
    view = subject.view(role, mask=subject.mask(role))
    seen: list[torch.Tensor] = []
    for record in (None, lambda name, value: None):
        assert x is not None
        output = attention(x, memory, view, None, record)
        seen.append(output.detach())
        if weights := list(attention.parameters()):
            seen += torch.autograd.grad(output.sum(), weights, allow_unused=True, materialize_grads=True)
    wrong = sum(int((~one.isfinite()).sum()) for one in seen)
    what = f"{role}: outputs and gradients that are not finite where activations are 1000"
    return within(float(wrong), what, 0.0, shown=f"{wrong} {what}")
