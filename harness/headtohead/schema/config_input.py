"""``ConfigInput``: the sections of a configuration as a user writes them, with optional fields.

``headtohead.config.resolve`` turns them into a complete ``RunConfig``.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from headtohead.schema.run_config import (
    MAX_LAYERS,
    DataFields,
    EvaluateConfig,
    ModelFields,
    Normalisation,
    QuirksConfig,
    TrainConfig,
)


class DataInput(DataFields):
    """Sentence pairs, their split and their tokens."""

    split: str | None = Field(
        None,
        description="grouped (no group on both sides), row (pairs are split one by one; reports label it leaky "
        "where test sources occur in train), another split of the dataset, or nothing-held-out "
        "(all pairs in train; valid and test are taken from them; reports label it); default: the dataset's first",
    )
    normalise: Normalisation | None = Field(
        None,
        description="none: split on spaces; unicode: NFC, lower case, letters of any script and "
        "digits kept, punctuation to spaces; ascii-fold: as notebook 3, á é í ó ú folded and "
        "everything outside a-z to a space; default: the dataset's",
    )


class ModelInput(ModelFields):
    """The encoder-decoder without its plugins."""

    layers: int = Field(2, ge=1, le=MAX_LAYERS, description="default of encoder_layers and decoder_layers")
    encoder_layers: int | None = Field(None, ge=1, le=MAX_LAYERS, description="layers of the encoder; default: layers")
    decoder_layers: int | None = Field(None, ge=1, le=MAX_LAYERS, description="layers of the decoder; default: layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="default of the four dropout rates below")
    dropout_embedding: float | None = Field(
        None, ge=0, lt=1, description="dropout after the embedding; default: dropout"
    )
    dropout_attention: float | None = Field(
        None, ge=0, lt=1, description="dropout on attention weights; default: dropout"
    )
    dropout_ffn: float | None = Field(
        None, ge=0, lt=1, description="dropout inside the feed-forward network; default: dropout"
    )
    dropout_residual: float | None = Field(
        None, ge=0, lt=1, description="dropout on the output of each residual block; default: dropout"
    )
    final_norm: bool | None = Field(
        None, description="LayerNorm after the encoder and after the decoder; default: only with norm: pre"
    )


SHORTHANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model", "layers"): ("encoder_layers", "decoder_layers"),
    ("model", "dropout"): ("dropout_embedding", "dropout_attention", "dropout_ffn", "dropout_residual"),
}
"""Fields that only set the defaults of other fields of their section."""

INIT_FROM = "init_from"
"""Field of a configuration beside the sections: the run with the initial weights."""

SECTIONS: dict[str, type[BaseModel]] = {
    "data": DataInput,
    "model": ModelInput,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "quirks": QuirksConfig,
}
"""Sections of a configuration that are not plugin families."""
