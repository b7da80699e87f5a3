"""Many sentences, each translated as it would be alone: those of similar length together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from headtohead.model.beam import translate
from headtohead.model.transformer import Rows, Transformer
from headtohead.schema.run_config import BeamConfig

TOGETHER = 128
"""Most sentences that are translated together (docs/internals/performance.md)."""


def translate_each(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    max_length: int,
    beam: BeamConfig | None,
    sos: int,
    eos: int,
    size: int = TOGETHER,
) -> list[list[int]]:
    """Return the words, as ids, that each source becomes alone in a batch.

    Args:
        model: Of one member, in evaluation mode.
        sources: Ids, boundary tokens included.
        max_length: Most words of a translation.
        beam: Of a beam search; None decodes greedily.
        sos: What the decoder reads first.
        eos: What ends a translation.
        size: Most sentences of a batch.

    Raises:
        HeadToHeadError: If the decoder reads one number of tokens only.
    """
    written: list[list[int]] = [[] for _ in sources]
    lengths = [len(source) for source in sources]
    device = model.target_embedding.weight.device
    for places in groups(lengths, size, padded=hides_padding(model)):
        live = torch.tensor([[lengths[place] for place in places]], device=device)
        source = torch.zeros(1, len(places), int(live.max()), dtype=torch.long, device=device)
        for row, place in enumerate(places):
            source[0, row, : lengths[place]] = torch.tensor(sources[place], device=device)
        # Each is told to be the first of its batch.
        ids = translate(
            model, source, live, max_length, beam, sos=sos, eos=eos, fill=eos, rows=Rows(1, torch.zeros_like(live))
        )
        for place, words in zip(places, ids[0].tolist(), strict=True):
            written[place] = words[: words.index(eos)] if eos in words else words
    return written


def hides_padding(model: Transformer) -> bool:
    """Tell whether no query sees a source token beyond its sentence, as the masks show."""
    reading = ("encoder", "cross") if model.attends_to_source else ("encoder",)
    places = torch.arange(8)
    for role in reading:
        mask = model.maskings[role].mask(role, places, places, torch.tensor([5]))
        if mask is None or bool(mask[..., 5:].any()):
            return False
    return True


def groups(lengths: Sequence[int], size: int, padded: bool = True) -> list[list[int]]:
    """Return places of sentences that may share a batch, the shortest sentences first.

    Args:
        lengths: Tokens of each sentence.
        size: Most sentences of a batch.
        padded: Whether a batch may have sentences of unequal length.
    """
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    parts = [order] if padded else [list(same) for _, same in groupby(order, key=lambda place: lengths[place])]
    return [part[start : start + size] for part in parts for start in range(0, len(part), size)]
