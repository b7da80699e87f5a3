"""Decoding, batched over members and sentences.

Greedy decoding goes token by token, and finished sentences leave the batch; non-autoregressive decoding is one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.model.cuda import WORDS_PER_CHECK, on_cuda
from headtohead.model.geometry import only_length
from headtohead.model.transformer import Transformer

WORTH_LEAVING = 0.85
"""Finished sentences leave the batch once at most this share of it is active (benchmarks/results.md)."""

TOGETHER = 128
"""Largest batch of sentences of ``translate_each`` (benchmarks/results.md)."""


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
        fill = vocabulary.eos if vocabulary.pad is None else vocabulary.pad
        return cls(vocabulary.sos, vocabulary.eos, fill)


SPECIAL_ENDS = Ends()
"""The ids of a vocabulary that begins with the special tokens."""


def is_causal(model: Transformer) -> bool:
    """Return whether the decoder's masks hide all later tokens, so that cached decoding is exact."""
    roles = ("decoder",) if model.attends_to_source else ("decoder", "cross")
    return all(model.maskings[role].hides_later(role) for role in roles)


class DecodingState:
    """Active sentences of a batch, with the encoder's output and caches.

    If caches are not exact, each step computes the decoder for all tokens.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding last.
        lengths: Source tokens without padding, ``[member, batch]``.
        max_length: Maximum length of a translation, <eos> not counted.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only, a source is longer than the maximum of
            an encoding or an attention, or the batch has more rows than the maximum of an encoding by rows. In a
            decoder-only model, a source that leaves no position for a token is too long.
        ValueError: If a decoder-only model gets sources of different lengths.
    """

    def __init__(
        self, model: Transformer, source: Tensor, lengths: Tensor, max_length: int
    ) -> None:
        """Encode the sources.

        A `HeadToHeadError` if the decoder supports a single number of tokens, or the sources are too long or too many;
        a `ValueError` for sources of different lengths in a decoder-only model.
        """
        only = only_length(model.config)
        if only is not None:
            raise HeadToHeadError(
                f"attention '{model.config.attention.decoder.name}' supports exactly {only} target tokens, "
                f"which stepwise decoding does not provide; set evaluate.decode: teacher-forced"
            )
        encodes = "encoder" in model.roles
        if not encodes and bool((lengths != source.shape[-1]).any()):
            raise ValueError("a decoder-only model decodes sources of equal length only")
        self.model = model
        self.lengths = lengths
        self.steps = _possible_steps(model, source, max_length)
        """Maximum number of decoded tokens: fewer than ``max_length`` if an entry supports fewer positions."""
        members, batch = source.shape[:2]
        self.member_index = torch.arange(members, device=source.device).unsqueeze(1)
        self.original_rows = torch.arange(batch, device=source.device).expand(members, -1)
        """Initial batch row of each sentence, ``[member, sentence]``."""
        self.prompt = None if encodes else source
        """Ids that the decoder reads before <sos>, in a decoder-only model."""
        self.memory = model.encode(source, lengths) if encodes else None
        self.caches = model.caches() if is_causal(model) else None

    def logits(self, written: Tensor) -> Tensor:
        """Return the logits of the next token, ``[member, sentence, vocab]``.

        In a decoder-only model, the first call also reads the prompt into the caches (prefill); without caches, every
        call reads the prompt and all tokens.

        Args:
            written: All tokens so far, <sos> included, ``[member, sentence, time]``; each call has one token more than
                the call before. With caches, only the last one is read.

        Raises:
            HeadToHeadError: If the tokens exceed the maximum of an encoding or an attention.
        """
        position = written.shape[-1] - 1
        is_first = position == 0
        if self.prompt is not None:
            if self.caches is None or is_first:
                written = torch.cat([self.prompt, written], dim=-1)
            if not is_first:
                position += self.prompt.shape[-1]
        if self.caches is None:
            lengths = self.lengths.new_full(written.shape[:2], written.shape[-1])
            hidden = self.model.decode(written, lengths, self.memory, self.lengths)
        else:
            new = written if is_first else written[:, :, -1:]
            hidden = self.model.step(new, position, self.memory, self.lengths, self.caches)
        return self.model.project(hidden[:, :, -1].unsqueeze(2))[:, :, 0]

    def active(self, done: Tensor, tokens: int) -> Tensor | None:
        """Remove finished sentences from the batch, and return the indices of the others, ``[member, sentence]``.

        None if all remain; no column if all are finished, and then the batch stays as it is.
        """
        remaining = active_indices(done, tokens, self.model.position_is_row)
        if remaining is not None and remaining.shape[1]:
            self._select(remaining)
        return remaining

    def _select(self, sentences: Tensor) -> None:
        """Keep only the sentences with these indices, ``[member, sentence]``, as many of each member, in place."""
        self.original_rows = self.original_rows.gather(1, sentences)
        self.lengths = self.lengths.gather(1, sentences)
        if self.memory is not None:
            self.memory = self.memory[self.member_index, sentences]
        if self.prompt is not None:
            self.prompt = self.prompt[self.member_index, sentences]
        for self_cache, cross_cache in self.caches or ():
            self_cache.select(sentences)
            cross_cache.select(sentences)


def _possible_steps(model: Transformer, source: Tensor, max_length: int) -> int:
    """Return the maximum number of decoded tokens for the positions that the entries of the decoder support.

    Raises:
        HeadToHeadError: If they do not support the first token, or as many rows.
    """
    prompt = 0 if "encoder" in model.roles else source.shape[-1]
    steps = max_length
    for role in model.roles:
        if role == "encoder":
            continue
        for bound in model.bounds[role]:
            bound.check(prompt + 1, source.shape[1])
            if bound.counts == "positions":
                steps = min(steps, bound.most - prompt)
    return steps


def active_indices(done: Tensor, tokens: int, together: bool = False) -> Tensor | None:
    """Return the indices of the sentences to continue, ``[member, sentence]``, or None for all.

    No column is left if all sentences are finished. While a member has a larger share of active sentences than
    `WORTH_LEAVING`, all sentences continue. All members continue the same number of sentences: a member with fewer
    active sentences continues finished ones too. On CUDA, where the number of sentences is read from the device, all
    continue until the next multiple of ``WORDS_PER_CHECK`` tokens.

    Args:
        done: Whether each sentence is finished, ``[member, sentence]``.
        tokens: Number of decoded tokens.
        together: Whether no sentence may leave the batch before all are finished.
    """
    if on_cuda(done) and tokens % WORDS_PER_CHECK:
        return None
    num_active = int((~done).sum(1).max())
    max_active = 0 if together else WORTH_LEAVING * done.shape[1]
    if num_active > max_active:
        return None
    active_first = done.int().argsort(dim=1, stable=True)
    return active_first[:, :num_active]


@torch.no_grad()
def greedy(
    model: Transformer, source: Tensor, lengths: Tensor, max_length: int, ends: Ends = SPECIAL_ENDS
) -> Tensor:
    """Translate by choosing the most probable token at every step; arguments as in `DecodingState`.

    Returns:
        Ids ``[member, batch, time]`` without <sos>; from <eos> on, ``ends.fill``. The time is ``max_length``, or if it
        is smaller, the number of positions that the decoder supports, without those of the source in a decoder-only
        model.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only, a source is longer than the maximum of
            an encoding or an attention, or the batch has more rows than the maximum of an encoding by rows. In a
            decoder-only model, a source that leaves no position for a token is too long.
        ValueError: If a decoder-only model gets sources of different lengths.
    """
    state = DecodingState(model, source, lengths, max_length)
    translated = torch.full((*source.shape[:2], state.steps), ends.fill, device=source.device)
    written = torch.full((*source.shape[:2], 1), ends.sos, device=source.device)
    done = torch.zeros(source.shape[:2], dtype=torch.bool, device=source.device)
    for position in range(state.steps):
        # In bfloat16, argmax takes four times as long on a CPU (benchmarks/results.md).
        chosen = state.logits(written).max(dim=-1).indices
        done = done | (chosen == ends.eos)
        chosen = torch.where(done, ends.fill, chosen)
        translated[state.member_index, state.original_rows, position] = chosen
        written = torch.cat([written, chosen.unsqueeze(-1)], dim=-1)
        remaining = state.active(done, position + 1)
        if remaining is None:  # all sentences stay in the batch
            continue
        if not remaining.shape[1]:  # all are finished
            break
        done = done.gather(1, remaining)
        written = written[state.member_index, remaining]
    return translated


def translate_each(
    model: Transformer, sources: Sequence[Sequence[int]], max_length: int, ends: Ends
) -> list[list[int]]:
    """Return the token ids of the greedy translation of each source, in the order of the sources.

    A translation ends before <eos>, and does not depend on the other sources: they share a batch only if none affects
    another. Without sources, the result is empty.

    Args:
        model: A stack with one member, in evaluation mode.
        sources: Token ids, boundary tokens included.
        max_length: Maximum length of a translation, <eos> not counted.
        ends: Ids of the vocabulary.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only, or a source is longer than the maximum
            of an encoding or an attention; in a decoder-only model, also if it leaves no position for a token.
    """
    translations: list[list[int]] = [[] for _ in sources]
    device = model.target_embedding.weight.device
    lengths = [len(source) for source in sources]
    for indices in _independent_batches(model, lengths):
        batch_lengths = torch.tensor([[lengths[index] for index in indices]], device=device)
        shape = (1, len(indices), int(batch_lengths.max()))
        # Which id pads does not matter: in a batch with padding, all masks hide it.
        source = torch.zeros(shape, dtype=torch.long, device=device)
        for row, index in enumerate(indices):
            source[0, row, : lengths[index]] = torch.tensor(sources[index], device=device)
        ids = greedy(model, source, batch_lengths, max_length, ends._replace(fill=ends.eos))
        for index, tokens in zip(indices, ids[0].tolist(), strict=True):
            end = tokens.index(ends.eos) if ends.eos in tokens else len(tokens)
            translations[index] = tokens[:end]
    return translations


def _independent_batches(model: Transformer, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of sources, sorted by length, in batches in which no source affects another.

    A batch has at most `TOGETHER` sources, and one if positions are batch rows. Sentences of different lengths share a
    batch only if an encoder reads them and padding is hidden.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    size = 1 if model.position_is_row else TOGETHER
    parts = [order]
    if "encoder" not in model.roles or not _hides_source_padding(model):
        parts = [list(same_length) for _, same_length in groupby(order, lengths.__getitem__)]
    for part in parts:
        for start in range(0, len(part), size):
            yield part[start : start + size]


def _hides_source_padding(model: Transformer) -> bool:
    """Return whether the masks of every attention to source tokens hide padding."""
    roles = ["encoder"]
    if model.attends_to_source:
        roles.append("cross")
    declared = [model.maskings[role].role_properties(role) or () for role in roles]
    return all("hides-padding" in properties for properties in declared)


def non_autoregressive(model: Transformer, source: Tensor, lengths: Tensor) -> Tensor:
    """Return the most probable token at every position of a single pass, ``[member, batch, time]``.

    The decoder input is zeros, as many as the source has tokens. An id of 0 is no token (notebook slides-en-fr).

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding last.
        lengths: Source tokens without padding, ``[member, batch]``.
    """
    logits: Tensor = model(source, lengths, torch.zeros_like(source), lengths)
    return logits.argmax(-1)
