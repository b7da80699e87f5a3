"""Beam search with a length penalty, batched over members, sentences and hypotheses.

Paper: I. Sutskever, O. Vinyals, Q. V. Le. "Sequence to Sequence Learning with Neural Networks".
NeurIPS 2014, arXiv:1409.3215, section 3.2. Length penalty: Y. Wu et al. "Google's Neural Machine
Translation System". 2016, arXiv:1609.08144, section 7, equation 14 without the coverage term:
``score(Y) = log P(Y) / lp(Y)``, ``lp(Y) = ((5 + |Y|) / 6)^alpha``. A. Vaswani et al. 2017, section
6.1 have a beam of 4 and an alpha of 0.6.

At every step each hypothesis of a sentence is continued by every word, and the continuations are
ranked by their log-probability. Those among the best ``size`` that end have finished; the best
``size`` that do not end are the next hypotheses. What has not ended after the most words stands as
it is, and competes with what has. ``|Y|`` counts the words of Y and its <eos>, if it has one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headtohead.data.vocabulary import EOS, PAD, SOS
from headtohead.model.decoding import active_indices, greedy, longest_target, refuse_one_length
from headtohead.model.decoding_state import DecodingState
from headtohead.model.transformer import Rows, Transformer
from headtohead.schema.run_config import BeamConfig

LOGITS_AT_ONCE = 2**26
"""Largest number of logits computed together; more are cut into pieces that give the same."""


def length_penalty(tokens: int, alpha: float) -> float:
    """Return what the log-probability of so many tokens is divided by."""
    return math.pow((5 + tokens) / 6, alpha)


@dataclass(frozen=True)
class Found:
    """The best translation of each sentence that a search has found.

    ``ids`` are ``[member, batch, at most max_length]`` without the start; from <eos> on they are
    the fill. ``lengths`` count their words, ``[member, batch]``. ``scores``, ``[member, batch]``,
    are log-probabilities in nats, each divided by the penalty of its length.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor


@torch.no_grad()
def beam_search(
    model: Transformer,
    source: Tensor,
    lengths: Tensor,
    max_length: int,
    beam: BeamConfig,
    *,
    sos: int = SOS,
    eos: int = EOS,
    fill: int = PAD,
    rows: Rows | None = None,
) -> Found:
    """Translate by following the likeliest beginnings of a sentence at once.

    A sentence is done when nothing that its hypotheses can become scores higher than what has
    finished; the result is that of a search to the end.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding on the right.
        lengths: Live source tokens, ``[member, batch]``.
        max_length: Most words of a translation, <eos> not counted.
        beam: Width and length penalty.
        sos: What the decoder reads first.
        eos: What ends a translation.
        fill: What stands from <eos> on; an id that can be read.
        rows: Rows that an encoding which counts them is told; default: those of the batch.

    Raises:
        HeadToHeadError: If the decoder reads one number of tokens only.
    """
    refuse_one_length(model, "beam")
    steps = longest_target(model, max_length)
    return _Search(model, source, lengths, steps, beam, (sos, eos, fill), rows).run()


def translate(
    model: Transformer,
    source: Tensor,
    lengths: Tensor,
    max_length: int,
    beam: BeamConfig | None,
    *,
    sos: int,
    eos: int,
    fill: int,
    rows: Rows | None = None,
) -> Tensor:
    """Return the ids of a beam search, or of greedy decoding where there is no beam."""
    ends = {"sos": sos, "eos": eos, "fill": fill}
    if beam is None:
        return greedy(model, source, lengths, max_length, rows=rows, **ends)
    return beam_search(model, source, lengths, max_length, beam, rows=rows, **ends).ids


class _Search:
    """One batch on its way: hypotheses, and the best that has finished."""

    def __init__(
        self,
        model: Transformer,
        source: Tensor,
        lengths: Tensor,
        steps: int,
        beam: BeamConfig,
        ids: tuple[int, int, int],
        rows: Rows | None,
    ) -> None:
        self.beam, self.steps = beam, steps
        self.sos, self.eos, self.fill = ids
        self.decoding_state = DecodingState(model, source, lengths, steps, rows)
        self.shape, self.device = source.shape[:2], source.device
        self.own = torch.arange(self.shape[0], device=self.device).unsqueeze(1)
        self.found = torch.full((*self.shape, steps), self.fill, device=self.device)
        """The best finished translation of each sentence of the batch."""
        self.lengths = torch.zeros(self.shape, dtype=torch.long, device=self.device)
        """Its words, ``[member, batch]``."""
        low = torch.full(self.shape, -torch.inf, device=self.device)
        self.scores = low.to(self.decoding_state.memory.dtype)
        """Its score, ``[member, batch]``; -inf before there is one."""
        self.written = torch.full((*self.shape, 1, 1), self.sos, device=self.device)
        """Hypotheses, ``[member, sentence, way, time]``."""
        self.likely = self.scores.new_zeros(*self.shape, 1)
        """Their log-probabilities."""

    def run(self) -> Found:
        if not self.steps:
            return Found(self.found, self.lengths, self.likely[..., 0])
        for tokens in range(1, self.steps + 1):
            self._step(tokens)
            if tokens == self.steps:
                self._finish(self.written[..., 1:], self.likely, tokens)
            elif not self._leave(tokens):
                break
        return Found(self.found, self.lengths, self.scores)

    def _step(self, tokens: int) -> None:
        """Continue every hypothesis by one word; ``tokens`` is how many each then has."""
        size = self.beam.size
        likely, words, parents = self._continuations()
        ends = words == self.eos
        # Continuations are in order: the first of them are the best of all.
        ended = likely.masked_fill(~ends, -torch.inf)[..., :size]
        self._finish(self._parents(parents[..., :size])[..., 1:], ended, tokens)
        going = likely.masked_fill(ends, -torch.inf)
        missing = size - going.shape[-1]
        if missing > 0:
            going, words, parents = (
                torch.nn.functional.pad(x, (0, missing), value=value)
                for x, value in ((going, -torch.inf), (words, self.fill), (parents, 0))
            )
        self.likely, chosen = going.topk(size, dim=-1)
        words, parents = words.gather(-1, chosen), parents.gather(-1, chosen)
        words = words.masked_fill(self.likely == -torch.inf, self.fill)
        self.written = torch.cat([self._parents(parents), words.unsqueeze(-1)], dim=-1)
        self.decoding_state.follow(parents, size)

    def _continuations(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, last words and parents of the best, the best first.

        ``[member, sentence, continuation]``. Of one hypothesis as many are enough as the beam is
        wide, and one more: the one that ends.
        """
        hidden = self.decoding_state.read(self.written.flatten(1, 2))
        vocabulary = self.decoding_state.model.rows.target
        rows = max(1, LOGITS_AT_ONCE // (len(hidden) * vocabulary))
        pieces = [self._best_words(part) for part in hidden.split(rows, dim=1)]
        more, words = (
            torch.cat(parts, dim=1).unflatten(1, self.written.shape[1:3]) for parts in zip(*pieces, strict=True)
        )
        likely = (more + self.likely.unsqueeze(-1)).flatten(2)
        order = likely.argsort(dim=-1, descending=True)
        parents = order // words.shape[-1]
        return likely.gather(-1, order), words.flatten(2).gather(-1, order), parents

    def _best_words(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and ids of each row's best next words, the best first."""
        logits = self.decoding_state.words(hidden)
        best, words = logits.topk(min(self.beam.size + 1, logits.shape[-1]), dim=-1)
        return best - logits.logsumexp(dim=-1, keepdim=True), words

    def _parents(self, parents: Tensor) -> Tensor:
        """Return the hypotheses that continuations belong to, ``[member, sentence, one, time]``."""
        time = self.written.shape[-1]
        return self.written.gather(2, parents.unsqueeze(-1).expand(-1, -1, -1, time))

    def _finish(self, texts: Tensor, likely: Tensor, tokens: int) -> None:
        """Remember the best of what has finished with ``tokens`` tokens, if it is a new best.

        Args:
            texts: Words without the start and without <eos>, ``[member, sentence, way, words]``.
            likely: Log-probabilities, -inf where nothing has finished.
            tokens: That are counted, <eos> included.
        """
        where = self.decoding_state.where
        scores = likely / length_penalty(tokens, self.beam.length_penalty)
        best, way = scores.max(dim=-1)
        better = best > self.scores[self.own, where]
        member, sentence = better.nonzero(as_tuple=True)
        row = where[member, sentence]
        self.scores[member, row] = best[member, sentence]
        text = texts[member, sentence, way[member, sentence]]
        self.found[member, row] = self.fill
        self.found[member, row, : text.shape[-1]] = text
        self.lengths[member, row] = text.shape[-1]

    def _leave(self, tokens: int) -> bool:
        """Let sentences go that are done; tell whether any is left.

        A log-probability can only fall, and is divided by the penalty of the most tokens at best.
        """
        most = length_penalty(self.steps, self.beam.length_penalty)
        reachable = self.likely.max(dim=-1).values / most
        done = self.scores[self.own, self.decoding_state.where] >= reachable
        left = active_indices(done)
        if left is not None and left.shape[1]:
            self.decoding_state.mask(left)
            self.written, self.likely = self.written[self.own, left], self.likely[self.own, left]
        return left is None or left.shape[1] > 0
