"""Numbers of rows of the token tables."""

from __future__ import annotations

from dataclasses import dataclass

from headtohead.schema.run_config import RunConfig


@dataclass(frozen=True)
class Rows:
    """Words that each token table has; the projection has as many as the target's.

    Where a vocabulary is smaller, the other rows belong to no word.
    """

    source: int
    target: int


def find_rows(config: RunConfig, source_words: int, target_words: int) -> Rows:
    """Return the rows of the token tables for vocabularies of these sizes.

    They are at least ``quirks.min_vocab_size``. With ``tie_embeddings: embeddings`` both sides have
    the larger number.
    """
    minimum = config.quirks.min_vocab_size or 0
    source, target = max(source_words, minimum), max(target_words, minimum)
    if config.model.tie_embeddings == "embeddings":
        source = target = max(source, target)
    return Rows(source, target)
