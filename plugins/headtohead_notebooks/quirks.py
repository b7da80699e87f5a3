"""Choices of the notebooks that change the model or the batches: options of the quirk ``notebooks``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from headtohead.model.batch import IGNORE_INDEX, Batch
from headtohead.model.blocks import apply_feed_forward
from headtohead.model.builder import Builder
from headtohead.model.layers import Record, ResidualBlock, SharedModule
from headtohead.model.transformer import Transformer
from headtohead.plugin import Options, Quirk, hookimpl


class NotebookOptions(Options):
    """Choices that only reproduce a notebook."""

    shift_targets: bool = Field(
        True,
        description="false: a target token predicts itself instead of the next token, so the input is the answer",
    )
    cross_attention_memory: Literal["encoder", "decoder"] = Field(
        "encoder",
        description="keys and values of cross-attention; decoder: the decoder's own states, so the source is ignored",
    )
    decoder_feed_forward: Literal["after-cross", "after-each"] = Field(
        "after-cross",
        description="after-each: a feed-forward network also after the decoder's self-attention",
    )


class NotebookQuirks(Quirk):
    """Unshifted targets, a decoder that attends to itself twice, and a feed-forward network after each attention."""

    phrase = (
        "the notebooks' quirks"
        "[ {shift_targets:with|without} shifted targets]"
        "[ with cross-attention to the {cross_attention_memory}]"
        "[ with feed-forwards {decoder_feed_forward}]"
    )
    Options = NotebookOptions
    label_options = ("shift_targets",)
    options: NotebookOptions

    def change_model(self, model: Transformer, build: Builder) -> None:
        """Insert a feed-forward network and a residual block after the self-attention of each decoder layer."""
        if self.options.decoder_feed_forward == "after-cross":
            return
        for number, layer in enumerate(model.decoder):
            layer.attention_branch = BlockWithFeedForward(
                cast("ResidualBlock", layer.attention_branch),
                build.feed_forward("decoder", number),
                build.branch("decoder", number),
            )

    def change_batch(self, batch: Batch) -> Batch:
        """Return a batch in which each target token, the last one too, is read and is its own label."""
        if self.options.shift_targets:
            return batch
        ids = batch.decoder_input_ids
        lengths = batch.target_lengths + 1
        is_token = torch.arange(ids.shape[-1]) < lengths.unsqueeze(-1)
        return replace(
            batch, labels=ids.masked_fill(~is_token, IGNORE_INDEX), target_lengths=lengths
        )

    @classmethod
    def key_sides(cls, options: NotebookOptions) -> Mapping[str, str]:  # type: ignore[override]
        return {"cross": "target"} if options.cross_attention_memory == "decoder" else {}

    @classmethod
    def incompatible_with(cls, options, setting):  # type: ignore[no-untyped-def]
        """Require cross-attention for the options that change it or stand between the attentions of a layer."""
        if "cross" in setting.config.roles:
            return None
        for name in ("cross_attention_memory", "decoder_feed_forward"):
            value = getattr(options, name)
            if value != NotebookOptions.model_fields[name].default:
                return (
                    f"quirks.notebooks.{name}: {value} requires cross-attention, which a decoder-only model lacks; "
                    "set model.architecture: encoder-decoder"
                )
        return None

    @classmethod
    def violations_by_option(cls, options: NotebookOptions) -> Mapping[str, str]:  # type: ignore[override]
        if options.cross_attention_memory == "encoder":
            return {}
        cause = "cross_attention_memory: decoder"
        return {"source-reaches-logits": cause, "gradients": cause}

    @classmethod
    def pitfalls_by_option(cls, options: NotebookOptions) -> Mapping[str, tuple[str, str]]:  # type: ignore[override]
        pitfalls = {}
        if options.cross_attention_memory == "decoder":
            pitfalls["cross_attention_memory"] = (
                "source ignored",
                "cross-attention attends to the decoder itself: no output depends on the source",
            )
        if not options.shift_targets:
            pitfalls["shift_targets"] = (
                "targets not shifted",
                "labels are not shifted: each token is its own label, and the decoder attends to it",
            )
        return pitfalls


class BlockWithFeedForward(nn.Module):
    """The residual block of an attention, followed by a feed-forward network in a residual block.

    It takes the place of the first block in its layer.
    """

    def __init__(
        self,
        block: ResidualBlock,
        feed_forward: nn.Module | SharedModule,
        feed_forward_block: ResidualBlock,
    ) -> None:
        super().__init__()
        self.block = block
        self.feed_forward = feed_forward
        self.feed_forward_block = feed_forward_block

    @property
    def norm(self) -> nn.Module | SharedModule:
        """The norm of the attention's block."""
        return self.block.norm

    def sublayer_input(self, x: Tensor, record: Record | None = None) -> Tensor:
        """Return the input of the attention for the input of the block."""
        return self.block.sublayer_input(x, record)

    def add(self, x: Tensor, output: Tensor, record: Record | None = None) -> Tensor:
        """Return the output of the feed-forward's block; its recorded steps have the prefix ``between``."""
        x = self.block.add(x, output, record)
        return apply_feed_forward(self.feed_forward_block, self.feed_forward, x, "between", record)


@hookimpl
def register_quirks() -> dict[str, type[Quirk]]:
    return {"notebooks": NotebookQuirks}
