"""Gradients are the derivative of what is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import Transformer
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.invariants.parity import gradients
from headtohead.testing.subject import Subject, forward
from headtohead.testing.verdict import Verdict, does_not_apply, within

STEP = 1e-7
CLOSE = 1e-4
"""Relative difference of a slope and its gradient; a kink of ReLU between the steps costs less."""


@invariant("derivative")
def gradients_are_the_derivative(subject: Subject) -> Verdict:
    """Along random directions, the gradient is the slope of the logits."""
    if any(not subject.attention(role).style.projects for role in ROLES):
        return does_not_apply("beside numbers of 1e9, none is left to measure a slope with")
    number = _apart(subject, 37)
    if not number <= CLOSE:
        # A kink between two steps is no fault, and does not lie on two directions.
        number = min(number, _apart(subject, 41))
    what = "relative difference of slope and gradient along a random direction"
    return within(number, what, CLOSE, shown=f"{what} is {number:.3g}")


def _apart(subject: Subject, direction: int) -> float:
    model = subject.build(subject.seeds)
    generator = torch.Generator().manual_seed(direction)
    towards = torch.randn(subject.plain.shape, generator=generator, dtype=torch.float64)
    towards = towards * subject.sentences.live_target.unsqueeze(-1)
    way = {
        name: torch.randn(one.shape, generator=generator, dtype=torch.float64) for name, one in model.named_parameters()
    }
    found = gradients(model, forward(model, subject.sentences), towards)
    slope = sum(float((found[name] * way[name]).sum()) for name in way)
    ahead = _moved(subject, model, way, STEP, towards)
    behind = _moved(subject, model, way, -2 * STEP, towards)
    measured = (ahead - behind) / (2 * STEP)
    return abs(measured - slope) / max(1.0, abs(slope))


@torch.no_grad()
def _moved(subject: Subject, model: Transformer, way: dict[str, Tensor], step: float, towards: Tensor) -> float:
    for name, parameter in model.named_parameters():
        parameter.add_(step * way[name])
    return float((forward(model, subject.sentences) * towards).sum())
