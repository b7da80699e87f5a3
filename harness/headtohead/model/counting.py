"""Parameters and floating-point operations of a variant, counted without a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from headtohead.experiment.schema import RunConfig
from headtohead.families.positional import Positional
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.operations import Operations, counted
from headtohead.model.transformer import Transformer


@dataclass(frozen=True)
class Counts:
    """Costs of one run.

    ``total`` counts every weight; ``non_embedding`` leaves out what grows with the vocabulary
    (token tables and the projection to words); ``attention`` counts the projections of all
    attentions. ``flops_per_token`` is one forward pass over a pair of mean lengths, divided by its
    target tokens; a training step costs about three times as much. ``inner_width`` is heads times
    key width of the decoder's self-attention.
    """

    total: int
    non_embedding: int
    attention: int
    flops_per_token: float
    inner_width: int
    path: dict[str, str]


def count(
    config: RunConfig,
    source_words: int,
    target_words: int,
    source_length: float,
    target_length: float,
) -> Counts:
    """Count one run's costs.

    Args:
        config: The variant.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        source_length: Mean source length in tokens, rounded for the count.
        target_length: Mean target length in tokens, likewise.

    Raises:
        HeadToHeadError: If the configuration is not defined.
    """
    return _count(
        config.model_dump_json(), source_words, target_words,
        max(1, round(source_length)), max(1, round(target_length)),
    )  # fmt: skip


@cache
def _count(
    config_json: str, source_words: int, target_words: int, source_length: int, target_length: int
) -> Counts:
    config = RunConfig.model_validate_json(config_json)

    def of_shapes(operations: Operations) -> Counts:
        model = Transformer(config, None, source_words, target_words).eval()
        source = torch.zeros(1, 1, source_length, dtype=torch.long, device="meta")
        target = torch.zeros(1, 1, target_length, dtype=torch.long, device="meta")
        lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
        with operations:
            model(source, lengths, target, lengths)
        return _counts(model, operations.flops / target_length)

    return counted(of_shapes)


def _counts(model: Transformer, flops_per_token: float) -> Counts:
    total = sum(parameter.numel() for parameter in model.parameters())
    vocabulary = sum(
        parameter.numel()
        for part in (model.source_embedding, model.target_embedding, model.words)
        if part is not None
        for parameter in part.parameters()
    )
    attention = sum(
        parameter.numel()
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
        for parameter in module.parameters()
    )
    positional = model.positionals["decoder"]
    assert isinstance(positional, Positional)
    geometry = positional.context.geometry
    return Counts(
        total=total,
        non_embedding=total - vocabulary,
        attention=attention,
        flops_per_token=flops_per_token,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )
