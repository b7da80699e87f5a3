"""Two configurations that are one function, or one training: reductions and null pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariants.stacking import trained_weights
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import EXACT, Verdict, within

Weights = Mapping[str, Tensor]


def as_they_are(weights: Weights) -> Weights:
    """Carry weights over unchanged."""
    return weights


@torch.no_grad()
def same_function(one: RunConfig, other: RunConfig, carry: Callable[[Weights], Weights] = as_they_are) -> Verdict:
    """Tell whether two configurations compute the same with the same weights.

    Args:
        one: The configuration whose weights are used.
        other: The configuration that is given them.
        carry: Turns the weights of ``one`` into weights of ``other``, by name.
    """
    subject = Subject(one)
    twin = Transformer(Subject(other).config, subject.seeds, *subject.words).double().eval()
    twin.load_state_dict(carry(subject.model.state_dict()))
    apart = (forward(twin, subject.sentences) - subject.plain)[subject.sentences.live_target]
    return within(float(apart.abs().max()), "difference of live logits", EXACT)


def same_training(one: RunConfig, other: RunConfig) -> Verdict:
    """Tell whether two configurations end a short training with bit-equal weights."""
    subject = Subject(one)
    trained = [trained_weights(subject, config, subject.seeds) for config in (one, other)]
    differing = sum(
        int((left[name] != right[name]).sum()) for left, right in zip(*trained, strict=True) for name in left
    )
    return within(float(differing), "weights that differ after the same steps", 0.0)
