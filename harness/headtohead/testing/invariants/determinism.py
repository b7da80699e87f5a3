"""A seed decides everything, and every seed decides something else."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, moved_logit
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, within, worst


@invariant("determinism")
def a_seed_decides_everything(subject: Subject) -> Verdict:
    """A seed gives the same weights and logits twice, alone and in a stack; another seed others."""
    stacked, again = (_start(subject, subject.seeds) for _ in range(2))
    last = len(subject.seeds) - 1
    alone, repeated = _start(subject, subject.seeds[last:]).state_dict(), again.state_dict()
    table = stacked.target_embedding.weight
    if last and bool((table[0] == table[1]).all()):
        return Verdict("broken", 0.0, "two seeds start with the same weights")
    verdicts = [_logits(subject, stacked)]
    for name, value in stacked.state_dict().items():
        twice, single = repeated[name], alone[name]
        told = f"{name}: difference of a member's start in a stack and alone"
        verdicts.append(_weights(value, twice, f"{name}: difference of two builds with one seed"))
        verdicts.append(_weights(value[last], single[0], told))
    return worst(*verdicts)


def _start(subject: Subject, seeds: tuple[int, ...]) -> Transformer:
    # Whatever draws from torch's own stream instead of its member's differs between two builds.
    return Transformer(subject.config, seeds, *subject.words).double().eval()


@torch.no_grad()
def _logits(subject: Subject, model: Transformer) -> Verdict:
    first, second = (forward(model, subject.sentences) for _ in range(2))
    live = torch.ones(first.shape[:3], dtype=torch.bool)
    found = moved_logit(first - second, live, "asking the same again")
    return within(found, "difference of two builds with one seed", 0.0)


def _weights(one: Tensor, other: Tensor, what: str) -> Verdict:
    if one.shape != other.shape:
        return Verdict("broken", None, f"{what}: shapes {list(one.shape)} and {list(other.shape)}")
    number = float((one - other).abs().max()) if one.numel() else 0.0
    return within(Seen(number, f"{what} is {number:.3g}"), what, 0.0)
