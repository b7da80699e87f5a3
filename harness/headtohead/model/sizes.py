"""The model section with every default that depends on another field filled in."""

from __future__ import annotations

from dataclasses import dataclass

from headtohead.schema.config import ModelConfig


@dataclass(frozen=True)
class Sizes:
    """Layers, dropout rates and final norm as they apply."""

    encoder_layers: int
    decoder_layers: int
    dropout_embedding: float
    dropout_attention: float
    dropout_ffn: float
    dropout_residual: float
    final_norm: bool


def find_sizes(model: ModelConfig) -> Sizes:
    """Resolve ``layers``, ``dropout`` and ``final_norm`` into what each place uses."""

    def rate(place: float | None) -> float:
        return model.dropout if place is None else place

    return Sizes(
        encoder_layers=model.encoder_layers or model.layers,
        decoder_layers=model.decoder_layers or model.layers,
        dropout_embedding=rate(model.dropout_embedding),
        dropout_attention=rate(model.dropout_attention),
        dropout_ffn=rate(model.dropout_ffn),
        dropout_residual=rate(model.dropout_residual),
        final_norm=model.norm == "pre" if model.final_norm is None else model.final_norm,
    )


@dataclass(frozen=True)
class VocabSizes:
    """Words that each token table has; the projection has as many as the target's.

    Where a vocabulary is smaller, the other rows belong to no word.
    """

    source: int
    target: int


def vocab_sizes(model: ModelConfig, source_words: int, target_words: int) -> VocabSizes:
    """Return the sizes of the tables for vocabularies of these sizes.

    With ``tied: embeddings`` both sides have the larger one; ``min_vocab_size`` is the least.
    """
    least = quirks.min_vocab_size or 1
    source, target = max(source_words, least), max(target_words, least)
    if model.tie_embeddings == "embeddings":
        source = target = max(source, target)
    return VocabSizes(source, target)
