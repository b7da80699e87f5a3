"""Translation of many sentences, grouped by length, with the results of batches of one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from headtohead.model.beam import translate
from headtohead.model.decoding import Ends
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import BeamConfig

TOGETHER = 128
"""Largest batch of sentences (benchmarks/results.md)."""


def translate_each(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    max_length: int,
    beam: BeamConfig | None,
    ends: Ends,
    size: int = TOGETHER,
) -> list[list[int]]:
    """Return the translation of each source in a batch of its own, as token ids.

    Args:
        model: A stack with one member, in evaluation mode.
        sources: Token ids, boundary tokens included.
        max_length: Maximum length of a translation, <eos> not counted.
        beam: Settings of a beam search; None decodes greedily.
        ends: Ids of the vocabulary.
        size: Maximum sentences of a batch.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only.
    """
    translations: list[list[int]] = [[] for _ in sources]
    lengths = [len(source) for source in sources]
    device = model.target_embedding.weight.device
    order = sorted(range(len(sources)), key=lengths.__getitem__)
    # Sentences of different lengths share a batch only if padding is hidden.
    parts = [order] if hides_padding(model) else [list(same) for _, same in groupby(order, lengths.__getitem__)]
    size = 1 if model.position_is_row else size
    for indices in (part[start : start + size] for part in parts for start in range(0, len(part), size)):
        own_lengths = torch.tensor([[lengths[index] for index in indices]], device=device)
        source = torch.zeros(1, len(indices), int(own_lengths.max()), dtype=torch.long, device=device)
        for row, index in enumerate(indices):
            source[0, row, : lengths[index]] = torch.tensor(sources[index], device=device)
        ids = translate(model, source, own_lengths, max_length, beam, ends._replace(fill=ends.eos))
        for index, tokens in zip(indices, ids[0].tolist(), strict=True):
            translations[index] = tokens[: tokens.index(ends.eos)] if ends.eos in tokens else tokens
    return translations


def hides_padding(model: Transformer) -> bool:
    """Return whether every mask of the source declares that it hides padding."""
    roles = ("encoder", "cross") if model.attends_to_source else ("encoder",)
    return all("hides-padding" in (model.maskings[role].role_properties(role) or ()) for role in roles)
