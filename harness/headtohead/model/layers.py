"""Layers with a leading member axis: one program trains every member of a stack.

Activations are ``[member, tokens, width]``, the tokens of a batch in one row: only attention needs
to know sentences apart. No operation mixes members, so each computes what it would compute alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from headtohead.model.dropout import Dropout
from headtohead.plugins.positional import Initializer, init_per_member, normal, uniform

Generators = Sequence[torch.Generator | None]

Init = str | Sequence[str]
"""``"xavier"`` or ``"torch"``, of all members or of each."""

Record = Callable[[str, Tensor], None]
"""Receives the name and the value of an intermediate tensor."""


def glorot(fan_in: int, fan_out: int) -> Initializer:
    """Uniform draw of Glorot & Bengio 2010 (AISTATS), section 4.2.1."""
    return uniform(math.sqrt(6.0 / (fan_in + fan_out)))


def _by_init(init: Init, torch_draw: Initializer, xavier: Initializer) -> Initializer | list[Initializer]:
    """Return how weights are drawn, by all members or by each."""
    if isinstance(init, str):
        return torch_draw if init == "torch" else xavier
    return [torch_draw if one == "torch" else xavier for one in init]


class StackedLinear(nn.Module):
    """Affine maps, one per member: weight ``[member, in, out]``, bias ``[member, 1, out]``.

    ``outputs`` lists the widths of maps that share an input; each is drawn on its own, and they are
    computed in one product.
    """

    def __init__(self, generators: Generators, width: int, outputs: Sequence[int], bias: bool, init: Init) -> None:
        super().__init__()
        # torch.nn.Linear draws weight and bias from U(-1/sqrt(in), 1/sqrt(in)).
        plain = uniform(width**-0.5)
        weights = [init_per_member(generators, (width, out), _by_init(init, plain, glorot(width, out))) for out in outputs]
        self.weight = nn.Parameter(torch.cat(weights, dim=-1))
        self.bias: nn.Parameter | None = None
        if bias:
            start = init_per_member(generators, (1, sum(outputs)), _by_init(init, plain, uniform(0.0)))
            self.bias = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


class StackedEmbedding(nn.Module):
    """Token tables ``[member, vocab, width]``, read by offset ids ``[member, batch, time]``."""

    def __init__(self, generators: Generators, words: int, width: int, init: Init) -> None:
        super().__init__()
        fill = _by_init(init, normal(1.0), normal(width**-0.5))
        self.weight = nn.Parameter(init_per_member(generators, (words, width), fill))
        self.alone = len(generators) == 1
        offsets = torch.arange(len(generators), device=self.weight.device) * words
        self.register_buffer("offsets", offsets.view(-1, 1, 1), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.alone:
            ids = ids + self.get_buffer("offsets")
        return torch.embedding(self.weight.flatten(0, 1), ids)


class StackedLayerNorm(nn.Module):
    """LayerNorm with a gain and a bias per member."""

    def __init__(self, members: int, width: int, eps: float, device: torch.device) -> None:
        super().__init__()
        self.eps = eps
        self.width = (width,)
        self.alone = members == 1
        self.weight = nn.Parameter(torch.ones(members, 1, width, device=device))
        self.bias = nn.Parameter(torch.zeros(members, 1, width, device=device))

    def forward(self, x: Tensor) -> Tensor:
        width = self.width
        if self.alone:
            gain, bias = self.weight.view(width), self.bias.view(width)
            return torch.layer_norm(x, width, gain, bias, self.eps)
        return torch.addcmul(self.bias, torch.layer_norm(x, width, eps=self.eps), self.weight)


class FeedForward(nn.Module):
    """Two maps with an activation between (Vaswani et al. 2017, section 3.3)."""

    def __init__(
        self, generators: Generators, d_model: int, d_ff: int, bias: bool, init: Init, activation: str, dropout: Dropout
    ) -> None:
        super().__init__()
        self.inner = StackedLinear(generators, d_model, [d_ff], bias, init)
        self.outer = StackedLinear(generators, d_ff, [d_model], bias, init)
        activations: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "gelu": functional.gelu}
        self.activation = activations[activation]
        self.dropout = dropout

    def forward(self, x: Tensor, record: Record | None = None) -> Tensor:
        hidden = self.inner(x)
        if record is not None:
            record("inner", hidden)
        hidden = self.activation(hidden)
        if record is not None:
            record("activated", hidden)
        outer: Tensor = self.outer(self.dropout(hidden))
        return outer
