"""A configuration with reduced widths, so that invariants take seconds."""

from __future__ import annotations

from typing import Any

from headtohead.schema.run_config import DataConfig, RunConfig, VocabularyConfig
from headtohead.testing.tiny import TRAIN

WIDTH, HEADS, LAYERS, INNER = 16, 4, 2, 12
"""Sizes above which a model is reduced; heads are then 4 wide."""


def small(config: RunConfig) -> RunConfig:
    """Return the configuration at small sizes, in float64, for four steps on made-up words.

    Its choices stay; a model that is small already keeps its sizes. Every head splits the width.
    """
    model = config.model
    sizes: dict[str, Any] = {
        "encoder_layers": min(model.encoder_layers, LAYERS),
        "decoder_layers": min(model.decoder_layers, LAYERS),
    }
    if model.d_model > WIDTH:
        sizes |= {"d_model": WIDTH, "heads": min(model.heads, HEADS), "d_ff": INNER}
    train = config.train.model_copy(update={**TRAIN, "epochs": None, "batch_size": None})
    quirks = config.quirks.model_copy(update={"min_vocab_size": None, "pad_to": "batch"})
    vocabulary = VocabularyConfig(shared=config.data.vocabulary.shared)
    data = DataConfig(split="grouped", normalise="none", vocabulary=vocabulary)
    return config.model_copy(
        update={"model": model.model_copy(update=sizes), "train": train, "quirks": quirks, "data": data}
    )
