"""Greedy decoding, batched over sentences and members, with a cache of keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.transformer import Transformer


def is_causal(model: Transformer) -> bool:
    """Tell whether the decoder's mask hides every later token, so that a cache is exact."""
    places = torch.arange(8)
    keep = model.maskings["decoder"].keep("decoder", places, places, torch.tensor([8]))
    return keep is not None and not bool(keep.triu(1).any())


def longest_target(model: Transformer, wanted: int) -> int:
    """Return ``wanted`` tokens, or fewer where the decoder's positions end before."""
    chosen = model.positionals["decoder"]
    limit = type(chosen).limit(chosen.options)  # type: ignore[attr-defined]
    return wanted if limit is None else min(wanted, limit)


@torch.no_grad()
def greedy(model: Transformer, source: Tensor, lengths: Tensor, max_length: int) -> Tensor:
    """Translate by taking the likeliest word at every step.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding on the right.
        lengths: Live source tokens, ``[member, batch]``.
        max_length: Most words of a translation, <eos> not counted.

    Returns:
        Ids ``[member, batch, at most max_length]`` without <sos>; from <eos> on, padding.
    """
    steps = longest_target(model, max_length)
    memory = model.encode(source, lengths)
    caches = model.caches(memory, steps) if is_causal(model) else None
    written = torch.full((*source.shape[:2], steps + 1), PAD, device=source.device)
    written[:, :, 0] = SOS
    done = torch.zeros(source.shape[:2], dtype=torch.bool, device=source.device)
    for position in range(steps):
        if caches is not None:
            token = written[:, :, position : position + 1]
            hidden = model.step(token, position, memory, lengths, caches)
        else:
            so_far = written[:, :, : position + 1]
            live = torch.full_like(lengths, position + 1)
            hidden = model.decode(so_far, live, memory, lengths)[:, :, -1:]
        chosen = model.project(hidden)[:, :, 0].argmax(dim=-1)
        done |= chosen == EOS
        if bool(done.all()):
            break
        written[:, :, position + 1] = torch.where(done, PAD, chosen)
    return written[:, :, 1:]
