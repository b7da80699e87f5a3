"""Beam search with a length penalty, batched over members, sentences and hypotheses.

Paper: I. Sutskever, O. Vinyals, Q. V. Le. "Sequence to Sequence Learning with Neural Networks".
NeurIPS 2014, arXiv:1409.3215, section 3.2. Length penalty: Y. Wu et al. "Google's Neural Machine
Translation System". 2016, arXiv:1609.08144, section 7, equation 14 without the coverage term:
``score(Y) = log P(Y) / lp(Y)``, ``lp(Y) = ((5 + |Y|) / 6)^alpha``. A. Vaswani et al. 2017, section
6.1, use a beam of 4 and alpha = 0.6.

At every step, each hypothesis of a sentence is continued by every token, and the continuations are
ranked by log-probability. Among the best ``size``, those with <eos> are finished translations. The
best ``size`` without <eos> are the next hypotheses. At the maximum length, active hypotheses
are candidates too. ``|Y|`` counts the tokens of Y, including <eos> if present.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headtohead.model.decoding import (
    SPECIAL_ENDS,
    Ends,
    active_indices,
    greedy,
    longest_target,
    most_probable,
    require_any_length,
)
from headtohead.model.decoding_state import DecodingState
from headtohead.model.loss import LOGITS_AT_ONCE
from headtohead.model.transformer import Transformer
from headtohead.schema.run_config import BeamConfig


def length_penalty(tokens: int, alpha: float) -> float:
    """Return the divisor of the log-probability of a translation with this number of tokens."""
    return math.pow((5 + tokens) / 6, alpha)


@dataclass(frozen=True)
class BeamSearchResult:
    """The best translation of each sentence.

    Args:
        ids: ``[member, batch, at most max_length]`` without <sos>; from <eos> on, ``fill``.
        lengths: Tokens without <eos>, ``[member, batch]``.
        scores: Log-probabilities in nats divided by the length penalty, ``[member, batch]``.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor


@torch.no_grad()
def beam_search(
    model: Transformer, source: Tensor, lengths: Tensor, max_length: int, beam: BeamConfig, ends: Ends = SPECIAL_ENDS
) -> BeamSearchResult:
    """Translate by beam search; arguments as in `greedy`.

    A sentence is finished once no hypothesis can reach a higher score than its best finished
    translation. The result equals that of a search up to the maximum length.

    Raises:
        HeadToHeadError: If the decoder supports a single number of tokens only.
    """
    require_any_length(model, "beam")
    return _Search(model, source, lengths, longest_target(model, max_length), beam, ends).run()


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
    return beam_search(model, source, lengths, max_length, beam, ends).ids


class _Search:
    """The search for a batch: hypotheses, and the best finished translation of each sentence."""

    def __init__(
        self, model: Transformer, source: Tensor, lengths: Tensor, steps: int, beam: BeamConfig, ends: Ends
    ) -> None:
        self.beam, self.steps, self.ends = beam, steps, ends
        self.decoding_state = DecodingState(model, source, lengths, steps)
        self.shape, self.device = source.shape[:2], source.device
        self.member_index = torch.arange(self.shape[0], device=self.device).unsqueeze(1)
        self.best_ids = torch.full((*self.shape, steps), self.ends.fill, device=self.device)
        """The best finished translation of each sentence of the batch."""
        self.best_lengths = torch.zeros(self.shape, dtype=torch.long, device=self.device)
        """Its length in tokens, ``[member, batch]``."""
        low = torch.full(self.shape, -torch.inf, device=self.device)
        self.best_scores = low.to(self.decoding_state.memory.dtype)
        """Its score, ``[member, batch]``; -inf if there is none."""
        self.written = torch.full((*self.shape, 1, 1), self.ends.sos, device=self.device)
        """Hypotheses, ``[member, sentence, hypothesis, time]``."""
        self.log_probs = self.best_scores.new_zeros(*self.shape, 1)
        """Their log-probabilities."""

    def run(self) -> BeamSearchResult:
        if not self.steps:
            return BeamSearchResult(self.best_ids, self.best_lengths, self.log_probs[..., 0])
        for tokens in range(1, self.steps + 1):
            self._step(tokens)
            if tokens == self.steps:
                self._finish(self.written[..., 1:], self.log_probs, tokens)
            elif not self._drop_finished(tokens):
                break
        return BeamSearchResult(self.best_ids, self.best_lengths, self.best_scores)

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
                torch.nn.functional.pad(x, (0, missing), value=value)
                for x, value in ((active, -torch.inf), (last_tokens, self.ends.fill), (parents, 0))
            )
        self.log_probs, chosen = (part[..., :size] for part in active.sort(dim=-1, descending=True, stable=True))
        last_tokens, parents = last_tokens.gather(-1, chosen), parents.gather(-1, chosen)
        last_tokens = last_tokens.masked_fill(self.log_probs == -torch.inf, self.ends.fill)
        self.written = torch.cat([self._parents(parents), last_tokens.unsqueeze(-1)], dim=-1)
        self.decoding_state.follow(parents, size)

    def _continuations(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, last tokens and parents of the best continuations, sorted.

        ``[member, sentence, continuation]``. Beam size + 1 continuations per hypothesis suffice:
        those without <eos>, and the one with <eos>.
        """
        hidden = self.decoding_state.hidden(self.written.flatten(1, 2))
        vocab_size = self.decoding_state.model.vocab_sizes.target
        rows = max(1, LOGITS_AT_ONCE // (len(hidden) * vocab_size))
        pieces = [self._best_tokens(part) for part in hidden.split(rows, dim=1)]
        more, last_tokens = (
            torch.cat(parts, dim=1).unflatten(1, self.written.shape[1:3]) for parts in zip(*pieces, strict=True)
        )
        log_probs = (more + self.log_probs.unsqueeze(-1)).flatten(2)
        order = log_probs.argsort(dim=-1, descending=True, stable=True)
        parents = order // last_tokens.shape[-1]
        return log_probs.gather(-1, order), last_tokens.flatten(2).gather(-1, order), parents

    def _best_tokens(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and ids of the best next tokens of each row, sorted."""
        logits = self.decoding_state.project(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        best, last_tokens = logits.topk(min(self.beam.size + 1, logits.shape[-1]), dim=-1)
        # Of equal logits, the first token has the smallest id, as in greedy decoding.
        first = most_probable(logits).unsqueeze(-1)
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
        where = self.decoding_state.original_rows
        scores = log_probs / length_penalty(tokens, self.beam.length_penalty)
        best, index = scores.max(dim=-1)
        rows = self.member_index, where
        better = best > self.best_scores[rows]
        length = texts.shape[-1]
        text = texts.gather(2, index[..., None, None].expand(-1, -1, 1, length)).squeeze(2)
        text = torch.nn.functional.pad(text, (0, self.steps - length), value=self.ends.fill)
        self.best_scores[rows] = torch.where(better, best, self.best_scores[rows])
        self.best_ids[rows] = torch.where(better.unsqueeze(-1), text, self.best_ids[rows])
        self.best_lengths[rows] = torch.where(better, length, self.best_lengths[rows])

    def _drop_finished(self, tokens: int) -> bool:
        """Remove finished sentences from the batch, and return whether any is left.

        The log-probability of a hypothesis cannot rise, and the largest divisor is the penalty of
        the maximum length. This bounds the score that it can reach.
        """
        largest = length_penalty(self.steps, self.beam.length_penalty)
        reachable = self.log_probs.max(dim=-1).values / largest
        done = self.best_scores[self.member_index, self.decoding_state.original_rows] >= reachable
        left = active_indices(done, tokens, self.decoding_state.model.position_is_row)
        if left is not None and left.shape[1]:
            self.decoding_state.select(left)
            self.written, self.log_probs = (
                self.written[self.member_index, left],
                self.log_probs[self.member_index, left],
            )
        return left is None or left.shape[1] > 0
