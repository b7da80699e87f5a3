"""Parameters and FLOPs of a variant, counted without training."""

from __future__ import annotations

import json
from functools import cache

import torch

from headtohead.config.entries import entries_of, recorded_config
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.operations import Operations, counted
from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Component, require_members
from headtohead.plugins.entry import Entry
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ModelCounts


def count(
    config: RunConfig, source_words: int, target_words: int, source_length: float, target_length: float
) -> ModelCounts:
    """Return the costs of a run.

    Args:
        config: The variant.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        source_length: Mean source length in tokens, rounded for the count.
        target_length: Mean target length in tokens, rounded for the count.

    Raises:
        HeadToHeadError: If the configuration has an unknown entry or inconsistent sizes.
    """
    lengths = max(1, round(source_length)), max(1, round(target_length))
    return _count(*_cache_key(config), source_words, target_words, *lengths)


Classes = tuple[type[Entry], ...]


def _cache_key(config: RunConfig) -> tuple[str, Classes]:
    # A cell of a notebook that is executed again registers another class under the same name.
    classes = (current().find(family, entry.name).entry for family, entry in entries_of(config))
    return config.model_dump_json(), tuple(classes)


@cache
def _count(
    config_json: str, classes: Classes, source_words: int, target_words: int, source_length: int, target_length: int
) -> ModelCounts:
    config = recorded_config(json.loads(config_json), current(), "this one")

    def measure(operations: Operations) -> ModelCounts:
        model = Transformer(config, None, source_words, target_words).eval()
        source = torch.zeros(1, 1, source_length, dtype=torch.long, device="meta")
        target = torch.zeros(1, 1, target_length, dtype=torch.long, device="meta")
        lengths = torch.ones(1, 1, dtype=torch.long, device="meta")
        with operations:
            model(source, lengths, target, lengths)
        for part in model.modules():
            if isinstance(part, Component):
                require_members(part)  # a hook may have assigned another parameter
        return _counts(model, operations.flops / target_length)

    return counted(measure)


def _counts(model: Transformer, flops_per_token: float) -> ModelCounts:
    total = sum(parameter.numel() for parameter in model.parameters())
    vocabulary = sum(
        parameter.numel()
        for part in (model.source_embedding, model.target_embedding, model.lm_head)
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
    return ModelCounts(
        total=total,
        non_embedding=total - vocabulary,
        attention=attention,
        flops_per_token=flops_per_token,
        inner_width=geometry.heads * geometry.key_width,
        path=model.paths,
    )
