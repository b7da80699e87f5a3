"""Numbers of rows of the token embedding tables."""

from __future__ import annotations

from dataclasses import dataclass

from headtohead.schema.run_config import RunConfig


@dataclass(frozen=True)
class VocabSizes:
    """Rows of the embedding tables; ``lm_head`` has as many outputs as the target table has rows.

    They may exceed the sizes of the vocabularies; additional rows belong to no token.
    """

    source: int
    target: int


def vocab_sizes(config: RunConfig, source_words: int, target_words: int) -> VocabSizes:
    """Return the rows of the embedding tables for vocabularies of these sizes.

    They are at least ``quirks.min_vocab_size``. With ``tie_embeddings: embeddings`` both sides have
    the larger number.
    """
    minimum = config.quirks.min_vocab_size or 0
    source, target = max(source_words, minimum), max(target_words, minimum)
    if config.model.tie_embeddings == "embeddings":
        source = target = max(source, target)
    return VocabSizes(source, target)
