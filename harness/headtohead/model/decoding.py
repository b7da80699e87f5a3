"""Greedy decoding, batched over sentences and members, with a cache of keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.errors import HeadToHeadError
from headtohead.model.geometry import only_length
from headtohead.model.transformer import Transformer


def is_causal(model: Transformer) -> bool:
    """Tell whether the decoder's masks hide every later token, so that a cache is exact."""
    reading = ("decoder",) if model.hears_source else ("decoder", "cross")
    return all(model.maskings[role].hides_later(role) for role in reading)


def longest_target(model: Transformer, wanted: int) -> int:
    """Return ``wanted`` tokens, or fewer where positions or attention of the decoder end before."""
    bounds = model.bounds["decoder"] + model.bounds["cross"]
    return min([wanted, *(bound.most for bound in bounds if bound.counts == "places")])


@torch.no_grad()
def greedy(
    model: Transformer, source: Tensor, lengths: Tensor, max_length: int,
    *, sos: int = SOS, eos: int = EOS, fill: int = PAD,
) -> Tensor:  # fmt: skip
    """Translate by taking the likeliest word at every step.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding on the right.
        lengths: Live source tokens, ``[member, batch]``.
        max_length: Most words of a translation, <eos> not counted.
        sos: What the decoder reads first.
        eos: What ends a translation.
        fill: What stands from <eos> on; an id that can be read.

    Returns:
        Ids ``[member, batch, at most max_length]`` without <sos>; from <eos> on, ``fill``.

    Raises:
        HeadToHeadError: If the decoder reads one number of tokens only.
    """
    only = only_length(model.config)
    if only is not None:
        raise HeadToHeadError(
            f"attention '{model.config.attention.decoder.name}' reads exactly {only} tokens at "
            "once, which greedy decoding does not; set evaluate.decode: forced"
        )
    steps = longest_target(model, max_length)
    memory = model.encode(source, lengths)
    caches = model.caches(memory, steps) if is_causal(model) else None
    written = torch.full((*source.shape[:2], steps + 1), fill, device=source.device)
    written[:, :, 0] = sos
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
        done |= chosen == eos
        if bool(done.all()):
            break
        written[:, :, position + 1] = torch.where(done, fill, chosen)
    return written[:, :, 1:]
