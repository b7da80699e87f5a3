"""Numbers of rows of the token embedding tables."""

from __future__ import annotations

from typing import NamedTuple

from headtohead.schema.run_config import RunConfig


class VocabSizes(NamedTuple):
    """Rows of the embedding tables, at least the sizes of the vocabularies; more rows belong to no token."""

    source: int
    target: int


def vocab_sizes(config: RunConfig, *words: int) -> VocabSizes:
    """Return the rows of both tables for vocabularies of these sizes; with ``tie_embeddings: embeddings``, the larger.

    They are at least ``quirks.min_vocab_size``.
    """
    rows = [max(size, config.quirks.min_vocab_size or 0) for size in words]
    return VocabSizes(*([max(rows)] * 2 if config.model.tie_embeddings == "embeddings" else rows))
