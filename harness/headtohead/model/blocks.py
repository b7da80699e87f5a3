"""Encoder layers and decoder layers."""

from __future__ import annotations

from torch import Tensor, nn

from headtohead.model.attention_context import AttentionContext, Cache
from headtohead.model.builder import Builder
from headtohead.model.layers import Record, ResidualBlock, SharedModule


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual block."""

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("encoder", layer)
        self.attention_branch = build.branch("encoder", layer)
        self.feed_forward = build.feed_forward("encoder", layer)
        self.feed_forward_branch = build.branch("encoder", layer)

    def forward(self, x: Tensor, ctx: AttentionContext, record: Record | None) -> Tensor:
        x = self.attention_branch(x, lambda h: self.attention(h, None, ctx, None, record), record)
        return _feed_forward(self.feed_forward_branch, self.feed_forward, x, "feed_forward", record)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention (unless the model has none) and feed-forward, each in a residual block.

    With ``quirks.cross_attention_memory: decoder``, cross-attention attends to the decoder itself.
    With ``quirks.decoder_feed_forward: after-each``, a feed-forward follows self-attention too.
    """

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("decoder", layer)
        self.attention_branch = build.branch("decoder", layer)
        self.between: nn.Module | SharedModule | None = None
        if build.config.quirks.decoder_feed_forward == "after-each":
            self.between = build.feed_forward("decoder", layer)
            self.between_branch = build.branch("decoder", layer)
        if "cross" in build.config.roles:
            self.cross = build.attention("cross", layer)
            self.cross_branch = build.branch("decoder", layer)
        self.feed_forward = build.feed_forward("decoder", layer)
        self.feed_forward_branch = build.branch("decoder", layer)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        contexts: tuple[AttentionContext, AttentionContext | None],
        caches: tuple[Cache | None, Cache | None] = (None, None),
        records: tuple[Record | None, Record | None] = (None, None),
    ) -> Tensor:
        own, cross = contexts
        x = self.attention_branch(
            x, lambda h: self.attention(h, None, own, caches[0], records[0]), records[0]
        )
        if self.between is not None:
            x = _feed_forward(self.between_branch, self.between, x, "between", records[0])
        if cross is not None:
            x = self.cross_branch(
                x, lambda h: self.cross(h, memory, cross, caches[1], records[1]), records[1]
            )
        return _feed_forward(
            self.feed_forward_branch, self.feed_forward, x, "feed_forward", records[0]
        )


def _feed_forward(
    branch: ResidualBlock,
    part: nn.Module | SharedModule,
    x: Tensor,
    name: str,
    record: Record | None,
) -> Tensor:
    """Apply a feed-forward in its residual block; recorded steps have the prefix ``name``."""
    if record is None:
        return branch(x, part)  # type: ignore[no-any-return]
    record_step = record

    def named(step: str, value: Tensor) -> None:
        record_step(f"{name}.{step}", value)

    return branch(x, lambda h: part(h, named), named)  # type: ignore[no-any-return]
