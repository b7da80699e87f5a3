"""Stepwise decoding, batched over members, sentences and hypotheses; finished sentences leave the batch.

Beam search: I. Sutskever, O. Vinyals, Q. V. Le. "Sequence to Sequence Learning with Neural Networks".
NeurIPS 2014, arXiv:1409.3215, section 3.2. Length penalty: Y. Wu et al. "Google's Neural Machine
Translation System". 2016, arXiv:1609.08144, section 7, equation 14 without the coverage term:
``score(Y) = log P(Y) / lp(Y)``, ``lp(Y) = ((5 + |Y|) / 6)^alpha``. A. Vaswani et al. 2017, section
6.1, use a beam of 4 and alpha = 0.6.

At every step of a beam search, each hypothesis of a sentence is continued by every token, and the
continuations are ranked by log-probability. Among the best ``size``, those with <eos> are finished translations.
The best ``size`` without <eos> are the next hypotheses. At the maximum length, active hypotheses
are candidates too. ``|Y|`` counts the tokens of Y, including <eos> if present.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data.vocabulary import EOS, PAD, SOS, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.model.cuda import WORDS_PER_CHECK, on_cuda
from headtohead.model.geometry import only_length
from headtohead.model.loss import LOGITS_AT_ONCE
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import BeamConfig

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
        return cls(
            vocabulary.sos,
            vocabulary.eos,
            vocabulary.eos if vocabulary.pad is None else vocabulary.pad,
        )


SPECIAL_ENDS = Ends()
"""The ids of a vocabulary that begins with the special tokens."""


def is_causal(model: Transformer) -> bool:
    """Return whether the decoder's masks hide all later tokens, so that cached decoding is exact."""
    roles = ("decoder",) if model.attends_to_source else ("decoder", "cross")
    return all(model.maskings[role].hides_later(role) for role in roles)


class DecodingState:
    """Active sentences of a batch, with the encoder's output and caches.

    The hypotheses of a sentence are adjacent rows, ``[member, batch · beam_size]``, and share its
    encoder output. If caches are not exact, each step computes the decoder for all tokens.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding last.
        lengths: Source tokens without padding, ``[member, batch]``.
        max_length: Maximum length of a translation, <eos> not counted.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only.
    """

    def __init__(
        self, model: Transformer, source: Tensor, lengths: Tensor, max_length: int
    ) -> None:
        only = only_length(model.config)
        if only is not None:
            raise HeadToHeadError(
                f"attention '{model.config.attention.decoder.name}' supports exactly {only} target tokens, "
                f"which stepwise decoding does not provide; set evaluate.decode: teacher-forced"
            )
        encodes = "encoder" in model.roles
        if not encodes and bool((lengths != source.shape[-1]).any()):
            raise ValueError("a decoder-only model decodes sources of equal length only")
        bounds = [
            bound for role in model.roles if role != "encoder" for bound in model.bounds[role]
        ]
        first = 0 if encodes else source.shape[-1]
        most = (bound.most - first for bound in bounds if bound.counts == "positions")
        self.steps = max(0, min([max_length, *most]))
        """Maximum number of decoded tokens: fewer than ``max_length`` if an entry supports fewer positions."""
        self.model, self.lengths = model, lengths
        members, batch = source.shape[:2]
        self.member_index = torch.arange(members, device=source.device).unsqueeze(1)
        self.original_rows = torch.arange(batch, device=source.device).expand(members, -1)
        """Initial batch row of each sentence, ``[member, sentence]``."""
        self.prompt = None if encodes else source
        """Ids that the decoder reads before <sos>, in a decoder-only model."""
        self.memory = model.encode(source, lengths) if encodes else None
        self.caches = model.caches() if is_causal(model) else None
        self.beam_size = 1

    def hidden(self, written: Tensor) -> Tensor:
        """Return the decoder's output for the last token, ``[member, batch · beam_size, d_model]``.

        The first call of a decoder-only model also reads the prompt into the caches (prefill).

        Args:
            written: All tokens so far, <sos> included, ``[member, batch · beam_size, time]``.
        """
        position = written.shape[-1] - 1
        if self.prompt is not None:
            if self.caches is None or position == 0:
                written = torch.cat(
                    [self.prompt.repeat_interleave(self.beam_size, dim=1), written], dim=-1
                )
            position = 0 if position == 0 else self.prompt.shape[-1] + position
        if self.caches is not None:
            read = written if position == 0 else written[:, :, -1:]
            hidden = self.model.step(read, position, self.memory, self.lengths, self.caches)
        else:
            lengths = self.lengths.new_full(written.shape[:2], written.shape[-1])
            hidden = self.model.decode(
                written, lengths, self.memory, self.lengths, beam_size=self.beam_size
            )
        return hidden[:, :, -1]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits of the next token for the result of ``hidden``, or for some of its rows."""
        return self.model.project(hidden.unsqueeze(2))[:, :, 0]

    def active(self, done: Tensor, tokens: int) -> Tensor | None:
        """Remove finished sentences from the batch, and return the indices of the others; None if all remain."""
        left = active_indices(done, tokens, self.model.position_is_row)
        if left is not None and left.shape[1]:
            self.select(left)
        return left

    def select(self, sentences: Tensor) -> None:
        """Keep only the given sentences of each member, ``[member, sentence]``."""
        self.original_rows, self.lengths = (
            x.gather(1, sentences) for x in (self.original_rows, self.lengths)
        )
        if self.memory is not None:
            self.memory = self.memory[self.member_index, sentences]
        if self.prompt is not None:
            self.prompt = self.prompt[self.member_index, sentences]
        hypotheses = torch.arange(self.beam_size, device=sentences.device)
        rows = (sentences.unsqueeze(-1) * self.beam_size + hypotheses).flatten(1)
        for first, second in self.caches or ():
            first.select(rows)
            second.select(sentences if self.model.attends_to_source else rows)

    def follow(self, parents: Tensor, beam_size: int) -> None:
        """Replace the hypotheses of each sentence by continuations of earlier hypotheses.

        Args:
            parents: Index of the continued hypothesis, ``[member, batch, beam_size]``.
            beam_size: New number of hypotheses per sentence.
        """
        starts = torch.arange(parents.shape[1], device=parents.device) * self.beam_size
        rows = (parents + starts.unsqueeze(-1)).flatten(1)
        changed = beam_size != self.beam_size
        self.beam_size = beam_size
        # On CUDA, the comparison would wait for the device.
        if (
            not changed
            and not on_cuda(rows)
            and bool((rows == torch.arange(rows.shape[1], device=rows.device)).all())
        ):
            return
        for first, second in self.caches or ():
            first.select(rows)
            if not self.model.attends_to_source:
                second.select(rows)


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
def greedy(
    model: Transformer, source: Tensor, lengths: Tensor, max_length: int, ends: Ends = SPECIAL_ENDS
) -> Tensor:
    """Translate by choosing the most probable token at every step; arguments as in `DecodingState`.

    Returns:
        Ids ``[member, batch, at most max_length]`` without <sos>; from <eos> on, ``ends.fill``.
    """
    state = DecodingState(model, source, lengths, max_length)
    translated = torch.full((*source.shape[:2], state.steps), ends.fill, device=source.device)
    written = torch.full((*source.shape[:2], 1), ends.sos, device=source.device)
    done = torch.zeros(source.shape[:2], dtype=torch.bool, device=source.device)
    for position in range(state.steps):
        # In bfloat16, argmax takes four times as long on a CPU (benchmarks/results.md).
        chosen = state.logits(state.hidden(written)).max(dim=-1).indices
        done = done | (chosen == ends.eos)
        chosen = torch.where(done, ends.fill, chosen)
        translated[state.member_index, state.original_rows, position] = chosen
        written = torch.cat([written, chosen.unsqueeze(-1)], dim=-1)
        left = state.active(done, position + 1)
        if left is not None:
            if not left.shape[1]:
                break
            done, written = done.gather(1, left), written[state.member_index, left]
    return translated


def length_penalty(tokens: int, alpha: float) -> float:
    """Return the divisor of the log-probability of a translation with this number of tokens."""
    return math.pow((5 + tokens) / 6, alpha)


def translate(
    model: Transformer,
    source: Tensor,
    lengths: Tensor,
    max_length: int,
    beam: BeamConfig | None,
    ends: Ends = SPECIAL_ENDS,
) -> Tensor:
    """Return the ids of a beam search, or of greedy decoding if ``beam`` is None."""
    if beam is None:
        return greedy(model, source, lengths, max_length, ends)
    return BeamSearch(model, source, lengths, max_length, beam, ends).run()[0]


class BeamSearch:
    """A beam search for a batch: hypotheses, and the best finished translation of each sentence.

    A sentence is finished once no hypothesis can reach a higher score than its best finished
    translation. The result equals that of a search up to the maximum length. Arguments as in `greedy`.
    """

    def __init__(
        self,
        model: Transformer,
        source: Tensor,
        lengths: Tensor,
        max_length: int,
        beam: BeamConfig,
        ends: Ends = SPECIAL_ENDS,
    ) -> None:
        self.beam, self.ends = beam, ends
        self.state = DecodingState(model, source, lengths, max_length)
        shape, device = source.shape[:2], source.device
        self.best_ids = torch.full((*shape, self.state.steps), ends.fill, device=device)
        """The best finished translation of each sentence of the batch."""
        scored = model.target_embedding.weight if self.state.memory is None else self.state.memory
        self.best_scores = torch.full(shape, -torch.inf, device=device).to(scored.dtype)
        """Its score, ``[member, batch]``; -inf if there is none."""
        self.written = torch.full((*shape, 1, 1), ends.sos, device=device)
        """Hypotheses, ``[member, sentence, hypothesis, time]``."""
        self.log_probs = self.best_scores.new_zeros(*shape, 1)
        """Their log-probabilities."""

    @torch.no_grad()
    def run(self) -> tuple[Tensor, Tensor]:
        """Return ids as `greedy`, and log-probabilities divided by the length penalty, ``[member, batch]``."""
        steps = self.state.steps
        if not steps:
            return self.best_ids, self.log_probs[..., 0]
        for tokens in range(1, steps + 1):
            self._step(tokens)
            if tokens == steps:
                self._finish(self.written[..., 1:], self.log_probs, tokens)
            elif not self._drop_finished(tokens):
                break
        return self.best_ids, self.best_scores

    def _step(self, tokens: int) -> None:
        """Continue every hypothesis by a token; ``tokens`` is its new number of tokens."""
        size = self.beam.size
        log_probs, last_tokens, parents = self._continuations()
        ends = last_tokens == self.ends.eos
        # Continuations are sorted, so the first ones are the best.
        finished = log_probs.masked_fill(~ends, -torch.inf)[..., :size]
        self._finish(self._parents(parents[..., :size])[..., 1:], finished, tokens)
        active = log_probs.masked_fill(ends, -torch.inf)
        missing = size - active.shape[-1]
        if missing > 0:
            active, last_tokens, parents = (
                functional.pad(x, (0, missing), value=value)
                for x, value in ((active, -torch.inf), (last_tokens, self.ends.fill), (parents, 0))
            )
        self.log_probs, chosen = (
            part[..., :size] for part in active.sort(dim=-1, descending=True, stable=True)
        )
        last_tokens, parents = last_tokens.gather(-1, chosen), parents.gather(-1, chosen)
        last_tokens = last_tokens.masked_fill(self.log_probs == -torch.inf, self.ends.fill)
        self.written = torch.cat([self._parents(parents), last_tokens.unsqueeze(-1)], dim=-1)
        self.state.follow(parents, size)

    def _continuations(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, last tokens and parents of the best continuations, sorted.

        ``[member, sentence, continuation]``. Beam size + 1 continuations per hypothesis suffice:
        those without <eos>, and the one with <eos>.
        """
        hidden = self.state.hidden(self.written.flatten(1, 2))
        rows = max(1, LOGITS_AT_ONCE // (len(hidden) * self.state.model.vocab_sizes.target))
        pieces = [self._best_tokens(part) for part in hidden.split(rows, dim=1)]
        more, last_tokens = (
            torch.cat(parts, dim=1).unflatten(1, self.written.shape[1:3])
            for parts in zip(*pieces, strict=True)
        )
        log_probs = (more + self.log_probs.unsqueeze(-1)).flatten(2)
        order = log_probs.argsort(dim=-1, descending=True, stable=True)
        parents = order // last_tokens.shape[-1]
        return log_probs.gather(-1, order), last_tokens.flatten(2).gather(-1, order), parents

    def _best_tokens(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and ids of the best next tokens of each row, sorted."""
        logits = self.state.logits(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        best, last_tokens = logits.topk(min(self.beam.size + 1, logits.shape[-1]), dim=-1)
        # Of equal logits, the first token has the smallest id, as in greedy decoding.
        first = logits.argmax(-1, keepdim=True)
        index = (last_tokens == first).to(torch.int8).argmax(dim=-1, keepdim=True)
        last_tokens = last_tokens.scatter(-1, index, last_tokens[..., :1])
        last_tokens = last_tokens.scatter(-1, torch.zeros_like(index), first)
        return best - logits.logsumexp(dim=-1, keepdim=True), last_tokens

    def _parents(self, parents: Tensor) -> Tensor:
        """Return the continued hypotheses, ``[member, sentence, continuation, time]``."""
        time = self.written.shape[-1]
        return self.written.gather(2, parents.unsqueeze(-1).expand(-1, -1, -1, time))

    def _finish(self, texts: Tensor, log_probs: Tensor, tokens: int) -> None:
        """Update the best finished translation of each sentence.

        Args:
            texts: Ids without <sos> and <eos>, ``[member, sentence, hypothesis, time]``.
            log_probs: Log-probabilities, -inf for active hypotheses.
            tokens: Length of the hypotheses for the penalty, <eos> included.
        """
        best, index = (log_probs / length_penalty(tokens, self.beam.length_penalty)).max(dim=-1)
        rows = self.state.member_index, self.state.original_rows
        better = best > self.best_scores[rows]
        length = texts.shape[-1]
        text = texts.gather(2, index[..., None, None].expand(-1, -1, 1, length)).squeeze(2)
        text = functional.pad(text, (0, self.state.steps - length), value=self.ends.fill)
        self.best_scores[rows] = torch.where(better, best, self.best_scores[rows])
        self.best_ids[rows] = torch.where(better.unsqueeze(-1), text, self.best_ids[rows])

    def _drop_finished(self, tokens: int) -> bool:
        """Remove finished sentences from the batch, and return whether any is left.

        The log-probability of a hypothesis cannot rise, and the largest divisor is the penalty of
        the maximum length. This bounds the score that it can reach.
        """
        member_index = self.state.member_index
        reachable = self.log_probs.max(dim=-1).values / length_penalty(
            self.state.steps, self.beam.length_penalty
        )
        left = self.state.active(
            self.best_scores[member_index, self.state.original_rows] >= reachable, tokens
        )
        if left is not None:
            self.written, self.log_probs = (
                self.written[member_index, left],
                self.log_probs[member_index, left],
            )
        return left is None or left.shape[1] > 0


def translate_each(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    max_length: int,
    beam: BeamConfig | None,
    ends: Ends,
) -> list[list[int]]:
    """Return the token ids of the translation of each source, which do not depend on the other sources.

    Args:
        model: A stack with one member, in evaluation mode.
        sources: Token ids, boundary tokens included.
        max_length: Maximum length of a translation, <eos> not counted.
        beam: Settings of a beam search; None decodes greedily.
        ends: Ids of the vocabulary.
    """
    translations: list[list[int]] = [[] for _ in sources]
    lengths = [len(source) for source in sources]
    device = model.target_embedding.weight.device
    order = sorted(range(len(sources)), key=lengths.__getitem__)
    roles = [
        role
        for role in model.roles
        if role == "encoder" or (role == "cross" and model.attends_to_source)
    ]
    declared = [model.maskings[role].role_properties(role) or () for role in roles]
    hides_padding = "encoder" in model.roles and all(
        "hides-padding" in properties for properties in declared
    )
    # Sentences of different lengths share a batch only if an encoder reads them and padding is hidden.
    parts = (
        [order]
        if hides_padding
        else [list(same) for _, same in groupby(order, lengths.__getitem__)]
    )
    size = 1 if model.position_is_row else TOGETHER
    for indices in (
        part[start : start + size] for part in parts for start in range(0, len(part), size)
    ):
        own_lengths = torch.tensor([[lengths[index] for index in indices]], device=device)
        source = torch.zeros(
            1, len(indices), int(own_lengths.max()), dtype=torch.long, device=device
        )
        for row, index in enumerate(indices):
            source[0, row, : lengths[index]] = torch.tensor(sources[index], device=device)
        ids = translate(model, source, own_lengths, max_length, beam, ends._replace(fill=ends.eos))
        for index, tokens in zip(indices, ids[0].tolist(), strict=True):
            translations[index] = tokens[: tokens.index(ends.eos)] if ends.eos in tokens else tokens
    return translations
