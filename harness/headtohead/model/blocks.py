"""Residual branches and the layers of encoder and decoder that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from headtohead.model.attention_context import AttentionContext, Cache
from headtohead.model.dropout import Dropout
from headtohead.model.layers import FeedForward, Record, StackedLayerNorm

if TYPE_CHECKING:
    from headtohead.model.builder import Builder


class Borrowed:
    """A part that the model has once and uses in many places, none of which has it."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, x: Tensor, record: Record | None = None) -> Tensor:
        if record is None:
            return self.part(x)  # type: ignore[no-any-return]
        return self.part(x, record)  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """A residual branch: normalisation before or after, dropout on what the branch adds."""

    def __init__(self, norm: StackedLayerNorm | Borrowed, pre: bool, dropout: Dropout) -> None:
        super().__init__()
        self.norm = norm
        self.pre = pre
        self.dropout = dropout

    def forward(self, x: Tensor, inner: Callable[[Tensor], Tensor], record: Record | None = None) -> Tensor:
        if record is not None:
            return self._shown(x, inner, record)
        if self.pre:
            total: Tensor = x + self.dropout(inner(self.norm(x)))
        else:
            total = self.norm(x + self.dropout(inner(x)))
        return total

    def _shown(self, x: Tensor, inner: Callable[[Tensor], Tensor], record: Record) -> Tensor:
        """Compute the same, each step handed over."""
        normed = x
        if self.pre:
            normed = self.norm(x)
            record("norm", normed)
        output = inner(normed)
        record("output", output)
        total: Tensor = x + self.dropout(output)
        record("residual", total)
        if self.pre:
            return total
        normed = self.norm(total)
        record("norm", normed)
        return normed


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each a residual branch."""

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("encoder", layer)
        self.attention_branch = build.branch()
        self.feed_forward = build.feed_forward()
        self.feed_forward_branch = build.branch()

    def forward(self, x: Tensor, view: AttentionContext, record: Record | None) -> Tensor:
        x = self.attention_branch(x, lambda h: self.attention.attend(h, None, view, None, record), record)
        return _feed(self.feed_forward_branch, self.feed_forward, x, "feed_forward", record)


class DecoderLayer(nn.Module):
    """Self-attention, a second attention, feed-forward, each a residual branch.

    The second attention reads the encoder, or with ``cross: decoder`` what the first one does. With
    ``decoder_feed_forward: after-each`` a feed-forward stands between them too.
    """

    def __init__(self, build: Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("decoder", layer)
        self.attention_branch = build.branch()
        self.between: FeedForward | Borrowed | None = None
        if build.config.quirks.decoder_feed_forward == "after-each":
            self.between = build.feed_forward()
            self.between_branch = build.branch()
        self.cross = build.attention("cross", layer)
        self.cross_branch = build.branch()
        self.feed_forward = build.feed_forward()
        self.feed_forward_branch = build.branch()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        views: tuple[AttentionContext, AttentionContext],
        caches: tuple[Cache | None, Cache | None] = (None, None),
        records: tuple[Record | None, Record | None] = (None, None),
    ) -> Tensor:
        own, cross = views
        x = self.attention_branch(x, lambda h: self.attention.attend(h, None, own, caches[0], records[0]), records[0])
        if self.between is not None:
            x = _feed(self.between_branch, self.between, x, "between", records[0])
        x = self.cross_branch(x, lambda h: self.cross.attend(h, memory, cross, caches[1], records[1]), records[1])
        return _feed(self.feed_forward_branch, self.feed_forward, x, "feed_forward", records[0])


def _feed(branch: ResidualBlock, part: FeedForward | Borrowed, x: Tensor, name: str, record: Record | None) -> Tensor:
    """Run a feed-forward in its branch, its steps handed over under its name."""
    if record is None:
        return branch(x, part)  # type: ignore[no-any-return]
    whole = record

    def named(step: str, value: Tensor) -> None:
        whole(f"{name}.{step}", value)

    return branch(x, lambda h: part(h, named), named)  # type: ignore[no-any-return]
