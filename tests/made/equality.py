"""Equality of two configurations: the same function, or the same training."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import RunConfig
from headtohead.testing.invariants.trained_stacks import trained_weights
from headtohead.testing.subject import Subject, forward

Weights = Mapping[str, Tensor]


@torch.no_grad()
def same_function(
    first: RunConfig, second: RunConfig, convert: Callable[[Weights], Weights] = dict
) -> bool:
    """Return whether two configurations compute the same logits from the weights of the first."""
    subject = Subject(first)
    other = Transformer(Subject(second).config, subject.seeds, *subject.vocab_sizes).double().eval()
    other.load_state_dict(convert(subject.model.state_dict()))
    difference = (forward(other, subject.sentences) - subject.reference_logits)[
        subject.sentences.target_nonpad
    ]
    return bool(difference.abs().max() <= 1e-9)


def same_training(first: RunConfig, second: RunConfig) -> bool:
    """Return whether two configurations have bit-equal weights after a short training."""
    subject = Subject(first)
    members = zip(
        *(trained_weights(subject, config, subject.seeds) for config in (first, second)),
        strict=True,
    )
    return all(torch.equal(left[name], right[name]) for left, right in members for name in left)
