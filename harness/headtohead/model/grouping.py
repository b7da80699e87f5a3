"""Which sentences are translated together: those of similar length, so that little is padded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from headtohead.model.transformer import Transformer


def hides_padding(model: Transformer) -> bool:
    """Tell whether no query sees a source token beyond its sentence, as the masks show."""
    reading = ("encoder", "cross") if model.hears_source else ("encoder",)
    places = torch.arange(8)
    for role in reading:
        keep = model.maskings[role].keep(role, places, places, torch.tensor([5]))
        if keep is None or bool(keep[..., 5:].any()):
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
    parts = [order] if padded else [
        list(same) for _, same in groupby(order, key=lambda place: lengths[place])
    ]  # fmt: skip
    return [part[start : start + size] for part in parts for start in range(0, len(part), size)]
