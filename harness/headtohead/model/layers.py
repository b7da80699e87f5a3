"""Layers with a leading member axis, which train all members of a stack together.

Activations are ``[member, tokens, width]`` with the tokens of a batch concatenated; only attention
distinguishes sentences. No operation mixes members, so each member computes the same as alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headtohead.model.aligned import affine
from headtohead.model.dropout import Dropout
from headtohead.plugins.component import Initializer, init_per_member, normal, require_like, uniform
from headtohead.plugins.feed_forward import FeedForward

Generators = Sequence[torch.Generator | None]

ZEROS = uniform(0.0)

Init = str | Sequence[str]
"""``"xavier"`` or ``"torch"`` for all members, or a value per member."""

Record = Callable[[str, Tensor], None]
"""Receives the name and the value of an intermediate tensor."""


@dataclass(frozen=True)
class TokenMixing:
    """Changes of a feed-forward network's tensors, ``[member, tokens, width]``, that depend on earlier tokens.

    Args:
        inputs: Changes its inputs.
        inner: Changes the result of its first map.
    """

    inputs: Callable[[Tensor], Tensor]
    inner: Callable[[Tensor], Tensor]


def _by_init(
    init: Init, torch_init: Initializer, xavier: Initializer
) -> Initializer | list[Initializer]:
    """Return the initialiser of all members, or an initialiser per member."""
    if isinstance(init, str):
        return torch_init if init == "torch" else xavier
    return [torch_init if name == "torch" else xavier for name in init]


class StackedLinear(nn.Module):
    """Affine maps, one per member: weight ``[member, in, out]``, bias ``[member, 1, out]``.

    A call maps ``[member, tokens, in]`` to ``[member, tokens, sum of outputs]``.

    Args:
        generators: A random generator per member; with None as the first, the parameters are on the device ``meta``.
        width: Width of the input, at least 1.
        outputs: Widths of maps that share the input, at least one. Their weights are drawn separately, map after map,
            then the biases of all in a single draw; the maps are computed as a single product.
        bias: Whether there is a bias.
        init: ``"torch"`` draws weights and biases as `torch.nn.Linear`; ``"xavier"`` draws weights by Glorot and Bengio
            and sets biases to zero. A name for all members or one per member.
    """

    def __init__(
        self, generators: Generators, width: int, outputs: Sequence[int], bias: bool, init: Init
    ) -> None:
        super().__init__()
        # torch.nn.Linear initialises weight and bias with U(-1/sqrt(in), 1/sqrt(in)).
        plain = uniform(width**-0.5)
        # Glorot & Bengio 2010 (AISTATS), section 4.2.1.
        xavier = {out: uniform(math.sqrt(6.0 / (width + out))) for out in outputs}
        weights = [
            init_per_member(generators, (width, out), _by_init(init, plain, xavier[out]))
            for out in outputs
        ]
        self.weight = nn.Parameter(torch.cat(weights, dim=-1))
        self.outputs = tuple(outputs)
        self.bias: nn.Parameter | None = None
        if bias:
            start = init_per_member(generators, (1, sum(outputs)), _by_init(init, plain, ZEROS))
            self.bias = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias)


class StackedEmbedding(nn.Module):
    """Embedding tables ``[member, vocab, width]`` for ids ``[member, batch, time]``."""

    def __init__(self, generators: Generators, vocab_size: int, width: int, init: Init) -> None:
        super().__init__()
        initializer = _by_init(init, normal(1.0), normal(width**-0.5))
        self.weight = nn.Parameter(init_per_member(generators, (vocab_size, width), initializer))
        self.has_one_member = len(generators) == 1
        offsets = torch.arange(len(generators), device=self.weight.device) * vocab_size
        self.register_buffer("offsets", offsets.view(-1, 1, 1), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        if not self.has_one_member:
            ids = ids + self.get_buffer("offsets")
        return torch.embedding(self.weight.flatten(0, 1), ids)


class StackedFeedForward(nn.Module):
    """The linear maps of a feed-forward network (Vaswani et al. 2017, section 3.3; gated: Shazeer 2020, section 2)."""

    def __init__(self, entry: FeedForward, init: Init, dropout: Dropout) -> None:
        super().__init__()
        model, generators = entry.context.model, entry.context.generators
        self.inner = StackedLinear(
            generators, model.d_model, [model.d_ff] * (1 + entry.gated), model.bias, init
        )
        self.outer = StackedLinear(generators, model.d_ff, [model.d_model], model.bias, init)
        self.entry = entry
        self.dropout = dropout

    @property
    def inner_width(self) -> int:
        """Width of the result of the first map, with that of the gate."""
        return sum(self.inner.outputs)

    def forward(
        self, x: Tensor, record: Record | None = None, mixing: TokenMixing | None = None
    ) -> Tensor:
        """Return the output for ``x [member, tokens, d_model]``, with its shape.

        Raises:
            HeadToHeadError: If ``activate`` or a hook of ``mixing`` returns a tensor of another shape, or except under
                autocast of another type.
        """
        if mixing is not None:
            x = mixing.inputs(x)
        inner = self.inner(x)
        if mixing is not None:
            inner = mixing.inner(inner)
        inner, *gate = inner.chunk(2, dim=-1) if self.entry.gated else (inner,)
        activated = self.entry.activate(inner)
        require_like(self.entry, "activate", activated, inner, "member tokens d_ff")
        if record is not None:
            record("inner", inner)
            record("activated", activated)
        for factor in gate:
            activated = activated * factor
            if record is not None:
                record("gate", factor)
                record("gated", activated)
        outer: Tensor = self.outer(self.dropout(activated))
        return outer


class SharedModule:
    """A module with a single instance in the model; a block that uses it does not register it."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, *arguments: Any) -> Tensor:
        return self.part(*arguments)  # type: ignore[no-any-return]


def unshared(part: object) -> Any:
    """Return the module of a part of a layer, which may be the single instance of the model."""
    return part.part if isinstance(part, SharedModule) else part


class ResidualBlock(nn.Module):
    """Residual connection with norms, and dropout on the output of the sublayer.

    Args:
        norm: Acts on the input of the sublayer or, if it is no pre-norm, on the sum.
        is_pre_norm: Whether ``norm`` acts before the sublayer.
        post_norm: Acts on the output of the sublayer, before dropout and the sum, or None.
        dropout: Dropout of the output.
    """

    def __init__(
        self,
        norm: nn.Module | SharedModule,
        is_pre_norm: bool,
        post_norm: nn.Module | SharedModule | None,
        dropout: Dropout,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.is_pre_norm = is_pre_norm
        self.post_norm = post_norm
        self.dropout = dropout

    def sublayer_input(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Return the input of the sublayer for the input of the block."""
        if not self.is_pre_norm:
            return x
        normed: Tensor = self.norm(x)
        if record is not None:
            record("norm", normed)
        return normed

    def add(self, x: Tensor, output: Tensor, record: Record | None = None) -> Tensor:
        """Return the output of the block for its input and the output of the sublayer, which have its shape.

        Args:
            x: Input of the block, ``[member, tokens, d_model]``.
            output: Output of the sublayer.
            record: Receives ``output``, ``post_norm``, ``residual`` and ``norm``, those that exist; or None.

        Raises:
            HeadToHeadError: If a norm of a plugin returns a tensor of a wrong shape or type.
        """
        if record is not None:
            record("output", output)
        if self.post_norm is not None:
            output = self.post_norm(output.to(x.dtype))
            if record is not None:
                record("post_norm", output)
        total: Tensor = x + self.dropout(output)
        if record is not None:
            record("residual", total)
        if not self.is_pre_norm:
            total = self.norm(total)
            if record is not None:
                record("norm", total)
        return total
