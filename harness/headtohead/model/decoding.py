"""Greedy decoding, batched over sentences and members; finished sentences leave the batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.model.cuda import WORDS_PER_CHECK, on_cuda
from headtohead.model.decoding_state import DecodingState, is_causal
from headtohead.model.geometry import only_length
from headtohead.model.loss import LARGE_VOCABULARY
from headtohead.model.transformer import Transformer

__all__ = ["active_indices", "greedy", "is_causal", "longest_target", "most_probable", "require_any_length"]

WORTH_LEAVING = 0.85
"""Finished sentences leave the batch once at most this share of it is active.

Measured in benchmarks/results.md.
"""


class Ends(NamedTuple):
    """Ids of the first decoder input, of the end of a translation, and from the end on, within the vocabulary."""

    sos: int = SOS
    eos: int = EOS
    fill: int = PAD

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Ends | None:
        """Return the ids of a vocabulary; None if it has no <sos> or no <eos>."""
        if vocabulary.sos is None or vocabulary.eos is None:
            return None
        return cls(vocabulary.sos, vocabulary.eos, vocabulary.eos if vocabulary.pad is None else vocabulary.pad)


SPECIAL_ENDS = Ends()
"""The ids of a vocabulary that begins with the special tokens."""


def longest_target(model: Transformer, wanted: int) -> int:
    """Return ``wanted`` tokens, or fewer if an entry of the decoder supports fewer positions."""
    bounds = model.bounds["decoder"] + model.bounds["cross"]
    return min([wanted, *(bound.most for bound in bounds if bound.counts == "positions")])


def require_any_length(model: Transformer, how: str) -> None:
    """Check that the decoder supports any number of tokens, as stepwise decoding requires.

    Raises:
        HeadToHeadError: If it does not. ``how`` names the decoding in the message.
    """
    only = only_length(model.config)
    if only is not None:
        raise HeadToHeadError(
            f"attention '{model.config.attention.decoder.name}' supports exactly {only} target tokens, "
            f"which {how} decoding does not provide; set evaluate.decode: teacher-forced"
        )


def most_probable(logits: Tensor) -> Tensor:
    """Return the id of the largest logit at every position, the smallest id if several are equal.

    It equals ``argmax``, which takes 1.3 to 3 times as long for large vocabularies on a CPU (benchmarks/results.md).
    """
    if on_cuda(logits) or logits.dtype == torch.bfloat16 or logits.shape[-1] < LARGE_VOCABULARY:
        return logits.max(dim=-1).indices
    largest = torch.empty_like(logits, dtype=torch.float32)
    torch.eq(logits, logits.amax(-1, keepdim=True), out=largest)
    ids = torch.mv(largest.view(-1, logits.shape[-1]), torch.arange(logits.shape[-1], dtype=torch.float32))
    ids = ids.view(logits.shape[:-1]).long()
    several = largest.sum(-1) != 1  # none if a logit is NaN
    if several.any():
        ids[several] = logits[several].max(dim=-1).indices
    return ids


def active_indices(done: Tensor, tokens: int, together: bool = False) -> Tensor | None:
    """Return the indices of the sentences to continue, ``[member, sentence]``, or None for all.

    All members continue the same number of sentences: a member with fewer active sentences
    continues finished ones too. On CUDA, where the number of sentences is read from the device, all continue until the
    next multiple of ``WORDS_PER_CHECK`` tokens.

    Args:
        done: Whether each sentence is finished, ``[member, sentence]``.
        tokens: Number of decoded tokens.
        together: Whether no sentence may leave the batch before all are finished.
    """
    if on_cuda(done) and tokens % WORDS_PER_CHECK:
        return None
    left = int((~done).sum(1).max())
    if left > (0 if together else WORTH_LEAVING * done.shape[1]):
        return None
    return done.int().argsort(dim=1, stable=True)[:, :left]


@torch.no_grad()
def greedy(model: Transformer, source: Tensor, lengths: Tensor, max_length: int, ends: Ends = SPECIAL_ENDS) -> Tensor:
    """Translate by choosing the most probable token at every step.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding last.
        lengths: Source tokens without padding, ``[member, batch]``.
        max_length: Maximum length of a translation, <eos> not counted.
        ends: Ids of the vocabulary.

    Returns:
        Ids ``[member, batch, at most max_length]`` without <sos>; from <eos> on, ``ends.fill``.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only.
    """
    require_any_length(model, "greedy")
    steps = longest_target(model, max_length)
    members, batch = source.shape[:2]
    member_index = torch.arange(members, device=source.device).unsqueeze(1)
    translated = torch.full((members, batch, steps), ends.fill, device=source.device)
    decoding_state = DecodingState(model, source, lengths, steps)
    written = torch.full((members, batch, 1), ends.sos, device=source.device)
    done = torch.zeros(source.shape[:2], dtype=torch.bool, device=source.device)
    for position in range(steps):
        chosen = most_probable(decoding_state.logits(written))
        done = done | (chosen == ends.eos)
        chosen = torch.where(done, ends.fill, chosen)
        translated[member_index, decoding_state.original_rows, position] = chosen
        written = torch.cat([written, chosen.unsqueeze(-1)], dim=-1)
        left = active_indices(done, position + 1, model.position_is_row)
        if left is not None:
            if not left.shape[1]:
                break
            decoding_state.select(left)
            done = done.gather(1, left)
            written = written[member_index, left]
    return translated
