"""Gradients equal finite differences of the logits."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import gradients
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, does_not_apply, within

STEP = 1e-7
CLOSE = 1e-4
"""Relative difference between slope and gradient; a kink of ReLU between the steps costs less."""


@invariant("derivative")
def gradients_equal_finite_differences(subject: Subject) -> Verdict:
    """Along random directions, the gradient is the slope of the logits."""
    if any(not subject.attention(role).style.projects for role in subject.roles):
        return does_not_apply("activations of 1e9 leave too few digits to measure a slope")
    difference = _relative_difference(subject, 37)
    if not difference <= CLOSE:
        # A kink of ReLU between the two steps is no error, and is absent along a second direction.
        difference = min(difference, _relative_difference(subject, 41))
    return within(difference, "relative difference between slope and gradient along a random direction", CLOSE)


def _relative_difference(subject: Subject, seed: int) -> float:
    model = subject.build(subject.seeds)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(subject.reference_logits.shape, generator=generator, dtype=torch.float64)
    weights = weights * subject.sentences.target_nonpad.unsqueeze(-1)
    direction = {
        name: torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        for name, parameter in model.named_parameters()
    }
    gradient = gradients(model, forward(model, subject.sentences), weights)
    expected = sum(float((gradient[name] * direction[name]).sum()) for name in direction)
    ahead = _weighted_logits_after_step(subject, model, direction, STEP, weights)
    behind = _weighted_logits_after_step(subject, model, direction, -2 * STEP, weights)
    slope = (ahead - behind) / (2 * STEP)
    return abs(slope - expected) / max(1.0, abs(expected))


@torch.no_grad()
def _weighted_logits_after_step(
    subject: Subject, model: Transformer, direction: dict[str, Tensor], step: float, weights: Tensor
) -> float:
    for name, parameter in model.named_parameters():
        parameter.add_(step * direction[name])
    return float((forward(model, subject.sentences) * weights).sum())
