"""A seed determines the initial weights and the logits; different seeds give different weights."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.testing.extremum import Extremum, largest_logit_change
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, violated, within, worst


@invariant("determinism")
def a_seed_determines_the_model(subject: Subject) -> Verdict:
    """Equal seeds give equal weights and logits, alone and in a stack; other seeds give other embeddings."""
    first, second = (_build(subject, subject.seeds) for _ in range(2))
    last = len(subject.seeds) - 1
    alone, rebuilt = _build(subject, subject.seeds[last:]).state_dict(), second.state_dict()
    table = first.target_embedding.weight
    if last and bool((table[0] == table[1]).all()):
        return violated("two seeds have the same initial weights", 0.0)
    verdicts = [_same_logits(subject, first)]
    for name, value in first.state_dict().items():
        verdicts.append(
            _same_weights(value, rebuilt[name], f"{name}: difference between two models with the same seeds")
        )
        verdicts.append(
            _same_weights(value[last], alone[name][0], f"{name}: difference between a member in a stack and alone")
        )
    return worst(*verdicts)


def _build(subject: Subject, seeds: tuple[int, ...]) -> Transformer:
    # Random numbers from torch's global generator would differ between two models.
    return Transformer(subject.config, seeds, *subject.vocab_sizes).double().eval()


@torch.no_grad()
def _same_logits(subject: Subject, model: Transformer) -> Verdict:
    first, second = (forward(model, subject.sentences) for _ in range(2))
    everywhere = torch.ones(first.shape[:3], dtype=torch.bool)
    change = largest_logit_change(first - second, everywhere, "repeating the same pass")
    return within(change, "difference between two passes of the same model", 0.0)


def _same_weights(first: Tensor, second: Tensor, quantity: str) -> Verdict:
    if first.shape != second.shape:
        return violated(f"{quantity}: shapes {list(first.shape)} and {list(second.shape)}")
    difference = float((first - second).abs().max()) if first.numel() else 0.0
    return within(Extremum(difference, f"{quantity} is {difference:.3g}"), quantity, 0.0)
