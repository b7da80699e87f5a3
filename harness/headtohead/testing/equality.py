"""Equality of two configurations: the same function, or the same training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariants.trained_stacks import trained_weights
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, within

Weights = Mapping[str, Tensor]


@torch.no_grad()
def same_function(
    first: RunConfig, second: RunConfig, convert: Callable[[Weights], Weights] = lambda weights: weights
) -> Verdict:
    """Return "holds" if two configurations compute the same logits from the same weights.

    Args:
        first: The configuration that the weights are built for.
        second: The configuration that receives them.
        convert: Maps the state dict of ``first`` to that of ``second``; by default unchanged.
    """
    subject = Subject(first)
    other = Transformer(Subject(second).config, subject.seeds, *subject.vocab_sizes).double().eval()
    other.load_state_dict(convert(subject.model.state_dict()))
    difference = (forward(other, subject.sentences) - subject.reference_logits)[subject.sentences.target_nonpad]
    return within(float(difference.abs().max()), "difference of logits at non-padding positions")


def same_training(first: RunConfig, second: RunConfig) -> Verdict:
    """Return "holds" if two configurations have bit-equal weights after a short training."""
    subject = Subject(first)
    trained = [trained_weights(subject, config, subject.seeds) for config in (first, second)]
    differing = sum(
        int((left[name] != right[name]).sum()) for left, right in zip(*trained, strict=True) for name in left
    )
    return within(differing, "weights that differ after the same steps", bound=0.0)
