"""The gradients of a batch shape as one compiled graph.

What a step does between its batch and its gradients is traced operation by operation, below
autograd and without Python, and handed to ``torch.compile``: no graph breaks, and one compilation
for each shape. torch caches compiled code on disk, so later stacks of the same shape load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from headtohead.model.attention_context import all_assumed
from headtohead.model.transformer import Transformer
from headtohead.training.backends import PAYS, Owned, Shape, compare, first_line

BACKEND = "inductor"

SHARE = 1e-2
"""Share of the norm of a member's gradient by which its compiled gradient may differ."""

Backward = Callable[[Tensor, Shape], Tensor]
"""Gives the model's parameters their gradients and returns the members' losses."""

Gradients = list[Tensor | None]


class Differentiable(Protocol):
    """The training whose gradients are compiled."""

    model: Transformer

    @property
    def live(self) -> Sequence[int]:
        """Members that still train."""

    def eager_gradients(self, rows: Tensor, shape: Shape) -> Tensor:
        """Give the parameters their gradients and return the members' losses, ``[member]``."""


class Compiled:
    """The backward pass, compiled for shapes that have enough planned steps.

    The first compiled gradients of a shape are verified: the eager gradients must agree in every
    live member. Where compiling or the verification fails, the rest of the training is eager, and
    the reason is logged. Compiled code is never dropped, because CUDA graphs that were captured
    with it read its constants.

    Args:
        planned: Planned steps of a shape, without its live positions.
        log: Receives the reason of a fallback.
    """

    def __init__(self, planned: Mapping[tuple[int, int, int], int], log: Callable[[str], None]) -> None:
        self.planned, self.log = planned, log
        self.fell_back = False
        self.compiled: dict[Shape, Callable[..., Any]] = {}
        self.verified: set[Shape] = set()

    def __call__(self, training: Differentiable, rows: Tensor, shape: Shape) -> Tensor:
        """Give the parameters their gradients and return the members' losses, ``[member]``."""
        if self.fell_back or self.planned.get(shape[:3], 0) < PAYS["compile"]:
            return training.eager_gradients(rows, shape)
        if shape not in self.verified:
            return self._verify(training, rows, shape)
        try:
            found = self._run(training.model, rows, shape)
        except Exception as error:
            self._fall_back(first_line(error))
        else:
            return _put(training.model, found)
        return training.eager_gradients(rows, shape)

    def _verify(self, training: Differentiable, rows: Tensor, shape: Shape) -> Tensor:
        """Compute gradients in both ways, and keep the eager ones."""
        model = training.model
        losses = training.eager_gradients(rows, shape)
        eager = [one.grad for one in _trained(model).values()]
        try:
            if shape not in self.compiled:
                self.compiled[shape] = _compile(model, training.eager_gradients, rows, shape)
            found = self._run(model, rows, shape)
        except Exception as error:
            self._fall_back(first_line(error))
            return losses
        fault, compared = _difference(model, eager, found[1:], training.live)
        if fault:
            self._fall_back(fault)
        elif compared:
            self.verified.add(shape)
        return losses

    def _run(self, model: Transformer, rows: Tensor, shape: Shape) -> Gradients:
        with torch.no_grad():
            weights = [one.detach() for one in model.parameters()]
            starts = model.dropout_rng.get_buffer("starts")
            found: Gradients = self.compiled[shape](rows, starts, *weights)
            return found

    def _fall_back(self, why: str) -> None:
        self.fell_back = True
        self.log(f"compile falls back to eager: {why}")


def _put(model: Transformer, found: Gradients) -> Tensor:
    losses, *gradients = found
    for parameter, gradient in zip(_trained(model).values(), gradients, strict=True):
        parameter.grad = gradient
    assert losses is not None
    return losses


def _trained(model: Transformer) -> dict[str, nn.Parameter]:
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


class _Backwards(nn.Module):
    """The backward pass as a module, so that torch calls it with other weights."""

    def __init__(self, model: Transformer, backward: Backward, shape: Shape) -> None:
        super().__init__()
        self.model, self.backward, self.shape = model, backward, shape

    def forward(self, rows: Tensor) -> Tensor:
        """Return the members' losses."""
        return self.backward(rows, self.shape)


def _compile(model: Transformer, backward: Backward, rows: Tensor, shape: Shape) -> Callable[..., Any]:
    """Return losses and gradients as a compiled function of rows, dropout's key and weights."""
    named = dict(model.named_parameters())

    whole = _Backwards(model, backward, shape)

    def gradients(rows: Tensor, starts: Tensor, *weights: Tensor) -> list[Tensor | None]:
        own = {
            name: one.detach().requires_grad_(parameter.requires_grad)
            for (name, parameter), one in zip(named.items(), weights, strict=True)
        }
        inside: dict[str, Tensor] = {f"model.{name}": one for name, one in own.items()}
        inside["model.dropout_rng.starts"] = starts
        losses = torch.func.functional_call(whole, inside, (rows,))
        return [losses, *(one.grad for one in own.values() if one.requires_grad)]

    weights = [one.detach() for one in named.values()]
    with all_assumed():
        graph = make_fx(gradients)(rows, model.dropout_rng.get_buffer("starts"), *weights)
    compiled: Callable[..., Any] = torch.compile(graph, dynamic=False, backend=BACKEND)
    return compiled


def _difference(model: Transformer, eager: Gradients, found: Gradients, live: Sequence[int]) -> tuple[str, bool]:
    """Return how compiled gradients differ from eager ones, and whether any were compared."""
    pairs = list(zip(_trained(model), eager, found, strict=True))
    if any((a is None) is not (b is None) for _, a, b in pairs):
        return "it has gradients of other parameters", True
    both = [(model.members_of(name), a, b) for name, a, b in pairs if not (a is None or b is None)]
    result = compare(
        None,
        {"gradients": [a for _, a, _ in both]},
        {"gradients": [Owned(b, members) for members, _, b in both]},
        live,
        SHARE,
    )
    return result.fault, result.compared
