"""The sentences of a batch that are still being translated: what their next word depends on."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.transformer import BatchRows, Transformer


def is_causal(model: Transformer) -> bool:
    """Tell whether the decoder's masks hide every later token, so that a cache is exact."""
    reading = ("decoder",) if model.attends_to_source else ("decoder", "cross")
    return all(model.maskings[role].hides_later(role) for role in reading)


class DecodingState:
    """Sentences with what the encoder made of them, and a cache where that is exact.

    A sentence may be written in several beam_size at once, the hypotheses of a beam: they stand side by
    side, ``[member, batch · beam_size]``, and read one memory. Where no cache is exact, every word is
    computed from all before it.

    Args:
        model: In evaluation mode.
        source: Ids ``[member, batch, time]``, padding on the right.
        lengths: Live source tokens, ``[member, batch]``.
        steps: Most tokens that are written.
        rows: Rows that an encoding which counts them is told; default: those of the batch.
    """

    def __init__(
        self, model: Transformer, source: Tensor, lengths: Tensor, steps: int, rows: BatchRows | None = None
    ) -> None:
        self.model = model
        self.lengths = lengths
        members, batch = source.shape[:2]
        self.where = torch.arange(batch, device=source.device).expand(members, -1)
        """The row of the batch that each sentence had at first, ``[member, sentence]``."""
        self.rows = rows
        if rows is None and model.position_is_row:
            self.rows = BatchRows(batch, self.where)
        self.memory = model.encode(source, lengths, rows=self.rows)
        self.caches = model.caches(self.memory, steps) if is_causal(model) else None
        self.beam_size = 1

    def logits(self, written: Tensor) -> Tensor:
        """Return logits of the next word of every row, ``[member, batch · beam_size, vocab]``.

        Args:
            written: All tokens so far, the first one included, ``[member, batch · beam_size, time]``.
        """
        return self.words(self.read(written))

    def read(self, written: Tensor) -> Tensor:
        """Return what ``words`` makes logits of, ``[member, batch · beam_size, d_model]``."""
        model, time = self.model, written.shape[-1]
        rows = self._told()
        if self.caches is not None:
            hidden = model.step(written[:, :, -1:], time - 1, self.memory, self.lengths, self.caches, rows)
        else:
            memory, lengths = self._spread(self.memory), self._spread(self.lengths)
            live = torch.full_like(lengths, time)
            hidden = model.decode(written, live, memory, lengths, rows=rows)
        return hidden[:, :, -1]

    def words(self, hidden: Tensor) -> Tensor:
        """Return logits of what ``read`` returned, or of some rows of it."""
        return self.model.project(hidden.unsqueeze(2))[:, :, 0]

    def mask(self, sentences: Tensor) -> None:
        """Go on with these sentences alone, ``[member, sentence]``; each member has its own."""
        self.where, self.lengths = (x.gather(1, sentences) for x in (self.where, self.lengths))
        own = torch.arange(len(sentences), device=sentences.device).unsqueeze(1)
        self.memory = self.memory[own, sentences]
        if self.rows is not None:
            self.rows = BatchRows(self.rows.count, self.rows.chosen.gather(1, sentences))
        written = self._rows_of(sentences)
        for first, second in self.caches or ():
            first.select(written)
            second.select(sentences if self.model.attends_to_source else written)

    def follow(self, parents: Tensor, beam_size: int) -> None:
        """Go on with ``beam_size`` rows of each sentence, each a continuation of an earlier row.

        Args:
            parents: Which of its sentence's rows each continues, ``[member, batch, beam_size]``.
            beam_size: How many there are of each sentence from now on.
        """
        starts = torch.arange(parents.shape[1], device=parents.device) * self.beam_size
        rows = (parents + starts.unsqueeze(-1)).flatten(1)
        changed = beam_size != self.beam_size
        self.beam_size = beam_size
        if not changed and bool((rows == torch.arange(rows.shape[1], device=rows.device)).all()):
            return
        for first, second in self.caches or ():
            first.select(rows)
            if not self.model.attends_to_source:
                second.select(rows)

    def _rows_of(self, sentences: Tensor) -> Tensor:
        """Return the rows of the chosen sentences, ``[member, sentence · beam_size]``."""
        beam_size = torch.arange(self.beam_size, device=sentences.device)
        return (sentences.unsqueeze(-1) * self.beam_size + beam_size).flatten(1)

    def _spread(self, x: Tensor) -> Tensor:
        """Give every way of writing a sentence its own row."""
        return x if self.beam_size == 1 else x.repeat_interleave(self.beam_size, dim=1)

    def _told(self) -> BatchRows | None:
        if self.rows is None:
            return None
        return BatchRows(self.rows.count, self._spread(self.rows.chosen))
