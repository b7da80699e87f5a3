"""The gradients of a batch shape as a single compiled graph.

The operations from a batch to its gradients are traced, including the backward pass, and passed to
``torch.compile``. There are no graph breaks, and each shape is compiled once. torch keeps compiled code
in headtohead's cache folder, so later stacks of the same shape load it, in any process and study.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from headtohead.data import cache_root
from headtohead.model.attention_context import all_assumed
from headtohead.model.transformer import Transformer
from headtohead.training.backends import MIN_PLANNED_STEPS, BatchShape, Owned, compare, first_line

BACKEND = "inductor"

MAX_GRADIENT_DIFFERENCE = 1e-2
"""Largest difference of a compiled gradient, as a share of the norm of the member's gradient."""

Backward = Callable[[Tensor, BatchShape], Tensor]
"""Sets the gradients of the model's parameters and returns the losses of the members."""

Gradients = list[Tensor | None]


class Differentiable(Protocol):
    """A training, as ``Compiled`` computes its gradients."""

    model: Transformer

    @property
    def active_members(self) -> Sequence[int]:
        """Members that still train."""

    def eager_gradients(self, rows: Tensor, shape: BatchShape) -> Tensor:
        """Set the gradients of the parameters and return the losses, ``[member]``."""


class Compiled:
    """The backward pass, compiled for shapes that have enough planned steps.

    The first compiled gradients of a shape are verified against eager gradients in every active
    member. If compiling or the verification fails, the rest of the training is eager, and the
    reason is logged. Compiled code is never freed, because CUDA graphs captured with it access its
    constants.

    Args:
        planned: Planned steps by the first three sizes of a shape.
        log: Receives the reason of a fallback.
    """

    def __init__(self, planned: Mapping[tuple[int, int, int], int], log: Callable[[str], None]) -> None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))
        self.planned, self.log = planned, log
        self.fell_back = False
        self.compiled: dict[BatchShape, Callable[..., Any]] = {}
        self.verified: set[BatchShape] = set()

    def __call__(self, training: Differentiable, rows: Tensor, shape: BatchShape) -> Tensor:
        """Set the gradients of the parameters and return the losses, ``[member]``."""
        if self.fell_back or self.planned.get(shape[:3], 0) < MIN_PLANNED_STEPS["compile"]:
            return training.eager_gradients(rows, shape)
        if shape not in self.verified:
            return self._verify(training, rows, shape)
        try:
            results = self._run(training.model, rows, shape)
        except Exception as error:
            self._fall_back(first_line(error))
        else:
            return _put(training.model, results)
        return training.eager_gradients(rows, shape)

    def _verify(self, training: Differentiable, rows: Tensor, shape: BatchShape) -> Tensor:
        """Compute eager and compiled gradients, compare both, and use the eager ones."""
        model = training.model
        losses = training.eager_gradients(rows, shape)
        eager = [parameter.grad for parameter in _trained(model).values()]
        try:
            if shape not in self.compiled:
                self.compiled[shape] = _compile(model, training.eager_gradients, rows, shape)
            compiled = self._run(model, rows, shape)
        except Exception as error:
            self._fall_back(first_line(error))
            return losses
        fault, compared = _difference(model, eager, compiled[1:], training.active_members)
        if fault:
            self._fall_back(fault)
        elif compared:
            self.verified.add(shape)
        return losses

    def _run(self, model: Transformer, rows: Tensor, shape: BatchShape) -> Gradients:
        with torch.no_grad():
            weights = [parameter.detach() for parameter in model.parameters()]
            starts = model.dropout_rng.get_buffer("starts")
            gradients: Gradients = self.compiled[shape](rows, starts, *weights)
            return gradients

    def _fall_back(self, why: str) -> None:
        self.fell_back = True
        self.log(f"compile falls back to eager: {why}")


def _put(model: Transformer, results: Gradients) -> Tensor:
    losses, *gradients = results
    for parameter, gradient in zip(_trained(model).values(), gradients, strict=True):
        parameter.grad = gradient
    assert losses is not None
    return losses


def _trained(model: Transformer) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


class _Backwards(nn.Module):
    """The backward pass as a module, so that ``functional_call`` can replace the weights."""

    def __init__(self, model: Transformer, backward: Backward, shape: BatchShape) -> None:
        super().__init__()
        self.model, self.backward, self.shape = model, backward, shape

    def forward(self, rows: Tensor) -> Tensor:
        """Return the losses of the members."""
        return self.backward(rows, self.shape)


def _compile(model: Transformer, backward: Backward, rows: Tensor, shape: BatchShape) -> Callable[..., Any]:
    """Return a compiled function from rows, dropout keys and weights to losses and gradients."""
    named = dict(model.named_parameters())

    whole = _Backwards(model, backward, shape)

    def gradients(rows: Tensor, starts: Tensor, *weights: Tensor) -> list[Tensor | None]:
        own = {
            name: weight.detach().requires_grad_(parameter.requires_grad)
            for (name, parameter), weight in zip(named.items(), weights, strict=True)
        }
        inside: dict[str, Tensor] = {f"model.{name}": weight for name, weight in own.items()}
        inside["model.dropout_rng.starts"] = starts
        losses = torch.func.functional_call(whole, inside, (rows,))
        return [losses, *(weight.grad for weight in own.values() if weight.requires_grad)]

    weights = [parameter.detach() for parameter in named.values()]
    with all_assumed():
        graph = make_fx(gradients)(rows, model.dropout_rng.get_buffer("starts"), *weights)
    compiled: Callable[..., Any] = torch.compile(graph, dynamic=False, backend=BACKEND)
    return compiled


def _difference(model: Transformer, eager: Gradients, compiled: Gradients, active: Sequence[int]) -> tuple[str, bool]:
    """Return how compiled gradients differ from eager ones, and whether any were compared."""
    pairs = list(zip(_trained(model), eager, compiled, strict=True))
    if any((a is None) is not (b is None) for _, a, b in pairs):
        return "compiled gradients are of other parameters", True
    both = [(model.members_of(name), a, b) for name, a, b in pairs if not (a is None or b is None)]
    result = compare(
        None,
        {"gradients": [a for _, a, _ in both]},
        {"gradients": [Owned(b, members) for members, _, b in both]},
        active,
        MAX_GRADIENT_DIFFERENCE,
    )
    return result.fault, result.compared
