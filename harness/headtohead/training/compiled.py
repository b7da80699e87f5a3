"""Gradients of a batch shape as one compiled graph.

What a step does between its batch and its gradients is traced operation by operation, below
autograd and without Python, and handed to ``torch.compile``: no graph breaks, and nothing is
compiled again but for another shape. What is compiled is kept by torch on disk, so that later
stacks of the same shape find it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from headtohead.model.transformer import Transformer
from headtohead.model.view import all_assumed
from headtohead.training.program import PAYS, Shape, first_line

BACKEND = "inductor"

AWAY = 1e-2
"""Norm of the difference by which compiled gradients may be off, in shares of their own norm."""

Backward = Callable[[Tensor, Shape], Tensor]
"""Gives the model's parameters their gradients and returns the members' losses."""


class Compiled:
    """The backward pass, compiled for shapes that have enough planned steps.

    A shape's first gradients are computed as well, and must agree. Where compiling fails or they do
    not, the rest of the training is computed and ``say`` is told why.

    Args:
        model: Whose parameters it is about.
        backward: What is compiled.
        planned: Steps that are planned of a shape, live positions aside.
        say: Is told why nothing is compiled any more.
    """

    def __init__(
        self,
        model: Transformer,
        backward: Backward,
        planned: Mapping[tuple[int, int, int], int],
        say: Callable[[str], None],
    ) -> None:
        self.model, self.backward = model, backward
        self.planned, self.say = planned, say
        self.given_up = False
        self.compiled: dict[Shape, Callable[..., Any]] = {}

    def __call__(self, rows: Tensor, shape: Shape) -> Tensor:
        """Give the parameters their gradients and return the members' losses, ``[member]``."""
        if self.given_up or self.planned.get(shape[:3], 0) < PAYS["compile"]:
            return self.backward(rows, shape)
        if shape in self.compiled:
            return self._put(self._run(rows, shape))
        losses = self.backward(rows, shape)
        computed = [one.grad for one in self._trained()]
        try:
            self.compiled[shape] = _compile(self.model, self.backward, rows, shape)
            found = self._run(rows, shape)
        except RuntimeError as error:
            self._give_up(first_line(error))
            return losses
        fault = _difference(computed, found[1:])
        if fault:
            self._give_up(fault)
            return losses
        return self._put(found)

    def _run(self, rows: Tensor, shape: Shape) -> list[Tensor | None]:
        with torch.no_grad():
            weights = [one.detach() for one in self.model.parameters()]
            starts = self.model.stream.get_buffer("starts")
            found: list[Tensor | None] = self.compiled[shape](rows, starts, *weights)
            return found

    def _put(self, found: list[Tensor | None]) -> Tensor:
        losses, *gradients = found
        for parameter, gradient in zip(self._trained(), gradients, strict=True):
            parameter.grad = gradient
        assert losses is not None
        return losses

    def _trained(self) -> list[nn.Parameter]:
        return [one for one in self.model.parameters() if one.requires_grad]

    def _give_up(self, why: str) -> None:
        self.given_up = True
        self.compiled.clear()
        self.say(f"torch.compile was given up, every step is computed: {why}")


def _compile(
    model: Transformer, backward: Backward, rows: Tensor, shape: Shape
) -> Callable[..., Any]:
    """Return losses and gradients as a compiled function of rows, dropout's key and weights."""
    named = dict(model.named_parameters())

    class Backwards(nn.Module):
        """The backward pass as torch calls a module with other weights in it."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, rows: Tensor) -> Tensor:
            return backward(rows, shape)

    whole = Backwards()

    def gradients(rows: Tensor, starts: Tensor, *weights: Tensor) -> list[Tensor | None]:
        own = {
            name: one.detach().requires_grad_(parameter.requires_grad)
            for (name, parameter), one in zip(named.items(), weights, strict=True)
        }
        inside: dict[str, Tensor] = {f"model.{name}": one for name, one in own.items()}
        inside["model.stream.starts"] = starts
        losses = torch.func.functional_call(whole, inside, (rows,))
        return [losses, *(one.grad for one in own.values() if one.requires_grad)]

    weights = [one.detach() for one in named.values()]
    with all_assumed():
        graph = make_fx(gradients)(rows, model.stream.get_buffer("starts"), *weights)
    compiled: Callable[..., Any] = torch.compile(graph, dynamic=False, backend=BACKEND)
    return compiled


def _difference(computed: list[Tensor | None], found: list[Tensor | None]) -> str:
    """Return how compiled gradients differ from computed ones, in words; nothing if they agree."""
    pairs = list(zip(computed, found, strict=True))
    if any((a is None) is not (b is None) for a, b in pairs):
        return "it has gradients of other parameters"
    both = [(a.double(), b.double()) for a, b in pairs if a is not None and b is not None]
    away = float(torch.stack([(a - b).square().sum() for a, b in both]).sum().sqrt())
    norm = float(torch.stack([a.square().sum() for a, _ in both]).sum().sqrt())
    if away <= AWAY * norm:
        return ""
    return f"its gradients are {away:.3g} away from computed ones, whose norm is {norm:.3g}"
