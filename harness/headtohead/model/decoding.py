"""Greedy decoding, batched over sentences and members; a sentence that has ended costs nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.errors import HeadToHeadError
from headtohead.model.decoding_state import DecodingState, is_causal
from headtohead.model.geometry import only_length
from headtohead.model.transformer import Rows, Transformer

__all__ = ["active_indices", "greedy", "is_causal", "longest_target", "refuse_one_length"]

WORTH_LEAVING = 0.85
"""Share of a batch that may be left before the others move together.

Measured in docs/internals/performance.md.
"""


def longest_target(model: Transformer, wanted: int) -> int:
    """Return ``wanted`` tokens, or fewer where positions or attention of the decoder end before."""
    bounds = model.bounds["decoder"] + model.bounds["cross"]
    return min([wanted, *(bound.most for bound in bounds if bound.counts == "places")])


def refuse_one_length(model: Transformer, how: str) -> None:
    """Refuse to write word by word with a decoder that reads one number of tokens only.

    Raises:
        HeadToHeadError: If it does; ``how`` names the way of decoding.
    """
    only = only_length(model.config)
    if only is not None:
        raise HeadToHeadError(
            f"attention '{model.config.attention.decoder.name}' reads exactly {only} tokens at "
            f"once, which {how} decoding does not; set evaluate.decode: teacher-forced"
        )


def active_indices(done: Tensor) -> Tensor | None:
    """Return the sentences to go on with, ``[member, sentence]``, or None where all may stay.

    Members go on with equally many: where one has fewer left, ended ones stand in for them.

    Args:
        done: Whether each sentence has ended, ``[member, sentence]``.
    """
    left = int((~done).sum(1).max())
    if left > WORTH_LEAVING * done.shape[1]:
        return None
    return done.int().argsort(dim=1, stable=True)[:, :left]


@torch.no_grad()
def greedy(
    model: Transformer,
    source: Tensor,
    lengths: Tensor,
    max_length: int,
    *,
    sos: int = SOS,
    eos: int = EOS,
    fill: int = PAD,
    rows: Rows | None = None,
) -> Tensor:
    """Translate by taking the likeliest word at every step.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding on the right.
        lengths: Live source tokens, ``[member, batch]``.
        max_length: Most words of a translation, <eos> not counted.
        sos: What the decoder reads first.
        eos: What ends a translation.
        fill: What stands from <eos> on; an id that can be read.
        rows: Rows that an encoding which counts them is told; default: those of the batch.

    Returns:
        Ids ``[member, batch, at most max_length]`` without <sos>; from <eos> on, ``fill``.

    Raises:
        HeadToHeadError: If the decoder reads one number of tokens only.
    """
    refuse_one_length(model, "greedy")
    steps = longest_target(model, max_length)
    members, batch = source.shape[:2]
    own = torch.arange(members, device=source.device).unsqueeze(1)
    translated = torch.full((members, batch, steps), fill, device=source.device)
    decoding_state = DecodingState(model, source, lengths, steps, rows)
    written = torch.full((members, batch, 1), sos, device=source.device)
    done = torch.zeros(source.shape[:2], dtype=torch.bool, device=source.device)
    for position in range(steps):
        chosen = decoding_state.logits(written).argmax(dim=-1)
        done = done | (chosen == eos)
        chosen = torch.where(done, fill, chosen)
        translated[own, decoding_state.where, position] = chosen
        written = torch.cat([written, chosen.unsqueeze(-1)], dim=-1)
        left = active_indices(done)
        if left is not None:
            if not left.shape[1]:
                break
            decoding_state.mask(left)
            done = done.gather(1, left)
            written = written[own, left]
    return translated
