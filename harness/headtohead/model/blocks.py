"""Encoder layers and decoder layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from headtohead.model.attention_context import AttentionContext, Cache
from headtohead.model.builder import Builder
from headtohead.model.layers import Record, ResidualBlock, SharedModule, TokenMixing, unshared

FirstValues = tuple[Tensor | None, Tensor | None]
"""The first values of self-attention and of cross-attention, see `MultiHeadAttention.forward`."""


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual block."""

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("encoder", layer)
        self.attention_branch = build.branch("encoder", layer)
        self.feed_forward = build.feed_forward("encoder", layer)
        self.attention.build_inner(self.feed_forward)
        self.feed_forward_branch = build.branch("encoder", layer)

    def forward(
        self,
        x: Tensor,
        ctx: AttentionContext,
        record: Record | None = None,
        first_values: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output ``[member, tokens, d_model]`` and the first values, as `MultiHeadAttention.forward` does.

        Args:
            x: ``[member, tokens, d_model]``.
            ctx: Positions and mask of self-attention.
            record: Receives the steps of all sublayers, or None.
            first_values: Those of the layer before; None in the first layer.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        inputs = self.attention_branch.sublayer_input(x, record)
        output, first_values = self.attention(inputs, None, ctx, None, record, first_values)
        x = self.attention_branch.add(x, output, record)
        mixing = self.attention.feed_forward_mixing(ctx)
        x = apply_feed_forward(
            self.feed_forward_branch, self.feed_forward, x, "feed_forward", record, mixing
        )
        return x, first_values


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention (unless the model has none) and feed-forward, each in a residual block."""

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("decoder", layer)
        self.attention_branch = build.branch("decoder", layer)
        if "cross" in build.num_layers:
            self.cross = build.attention("cross", layer)
            self.cross_branch = build.branch("decoder", layer)
        self.feed_forward = build.feed_forward("decoder", layer)
        self.attention.build_inner(self.feed_forward)
        self.feed_forward_branch = build.branch("decoder", layer)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        contexts: tuple[AttentionContext, AttentionContext | None],
        caches: tuple[Cache | None, Cache | None] = (None, None),
        records: tuple[Record | None, Record | None] = (None, None),
        first_values: FirstValues = (None, None),
    ) -> tuple[Tensor, FirstValues]:
        """Return the output ``[member, tokens, d_model]`` and the first values of both attentions.

        Every pair is of self-attention and of cross-attention.

        Args:
            x: ``[member, tokens, d_model]``.
            memory: ``[member, source tokens, d_model]``; None without cross-attention.
            contexts: Positions and masks; without the second one, cross-attention is skipped.
            caches: The caches of a decoding step, changed in place, or None.
            records: Receive the steps of all sublayers, or None.
            first_values: Those of the layer before; None in the first layer.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        self_context, cross_context = contexts
        self_cache, cross_cache = caches
        record, cross_record = records
        self_values, cross_values = first_values
        inputs = self.attention_branch.sublayer_input(x, record)
        output, self_values = self.attention(
            inputs, None, self_context, self_cache, record, self_values
        )
        x = self.attention_branch.add(x, output, record)
        if cross_context is not None:
            inputs = self.cross_branch.sublayer_input(x, cross_record)
            output, cross_values = self.cross(
                inputs, memory, cross_context, cross_cache, cross_record, cross_values
            )
            x = self.cross_branch.add(x, output, cross_record)
        mixing = self.attention.feed_forward_mixing(self_context, self_cache)
        x = apply_feed_forward(
            self.feed_forward_branch, self.feed_forward, x, "feed_forward", record, mixing
        )
        return x, (self_values, cross_values)


def apply_feed_forward(
    branch: ResidualBlock,
    part: nn.Module | SharedModule,
    x: Tensor,
    name: str,
    record: Record | None,
    mixing: TokenMixing | None = None,
) -> Tensor:
    """Return the output of a feed-forward in its residual block, with the shape of ``x``.

    Args:
        branch: The residual block.
        part: The feed-forward.
        x: ``[member, tokens, d_model]``.
        name: Prefix of the recorded steps, as in ``feed_forward.inner``.
        record: Receives the steps, or None.
        mixing: Hooks of the layer's attention style, or None.

    Raises:
        HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
    """
    network: Callable[..., Tensor] = part
    if mixing is not None:
        network = partial(unshared(part), mixing=mixing)
    if record is None:
        return branch.add(x, network(branch.sublayer_input(x)))
    record_step = record

    def named(step: str, value: Tensor) -> None:
        record_step(f"{name}.{step}", value)

    inputs = branch.sublayer_input(x, named)
    return branch.add(x, network(inputs, named), named)
