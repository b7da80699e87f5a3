"""A seed decides everything, and every seed decides something else."""

from __future__ import annotations

import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, within


@invariant("determinism")
def a_seed_decides_everything(subject: Subject) -> Verdict:
    """A seed gives the same weights and logits twice, alone and in a stack; another seed others."""
    stacked, again = (_start(subject, subject.seeds) for _ in range(2))
    last = len(subject.seeds) - 1
    alone = _start(subject, subject.seeds[last:]).state_dict()
    differences = [_logits_apart(subject, stacked)]
    for name, parameter in stacked.state_dict().items():
        differences.append(float((parameter - again.state_dict()[name]).abs().max()))
        differences.append(float((parameter[last] - alone[name][0]).abs().max()))
    table = stacked.target_embedding.weight
    if bool((table[0] == table[1]).all()):
        return Verdict("broken", 0.0, "two seeds start with the same weights")
    return within(max(differences), "difference of two builds with one seed", 0.0)


def _start(subject: Subject, seeds: tuple[int, ...]) -> Transformer:
    # Whatever draws from torch's own stream instead of its member's differs between two builds.
    return Transformer(subject.config, seeds, *subject.words).double().eval()


@torch.no_grad()
def _logits_apart(subject: Subject, model: Transformer) -> float:
    first, second = (forward(model, subject.sentences) for _ in range(2))
    return float((first - second).abs().max())
