"""State of stepwise decoding: the encoder's output and cached keys and values of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.cuda import on_cuda
from headtohead.model.transformer import Transformer


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
        steps: Maximum number of decoded tokens.
    """

    def __init__(self, model: Transformer, source: Tensor, lengths: Tensor, steps: int) -> None:
        self.model = model
        self.lengths = lengths
        members, batch = source.shape[:2]
        self.original_rows = torch.arange(batch, device=source.device).expand(members, -1)
        """Initial batch row of each sentence, ``[member, sentence]``."""
        self.memory = model.encode(source, lengths)
        self.caches = model.caches(self.memory, steps) if is_causal(model) else None
        self.beam_size = 1

    def logits(self, written: Tensor) -> Tensor:
        """Return logits of the next token of every row, ``[member, batch · beam_size, vocab]``.

        Args:
            written: All tokens so far, <sos> included, ``[member, batch · beam_size, time]``.
        """
        return self.project(self.hidden(written))

    def hidden(self, written: Tensor) -> Tensor:
        """Return the decoder's output for the last token, ``[member, batch · beam_size, d_model]``."""
        time = written.shape[-1]
        if self.caches is not None:
            hidden = self.model.step(written[:, :, -1:], time - 1, self.memory, self.lengths, self.caches)
        else:
            target_lengths = self.lengths.new_full(written.shape[:2], time)
            hidden = self.model.decode(written, target_lengths, self.memory, self.lengths)
        return hidden[:, :, -1]

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits for the result of ``hidden``, or for some of its rows."""
        return self.model.project(hidden.unsqueeze(2))[:, :, 0]

    def select(self, sentences: Tensor) -> None:
        """Keep only the given sentences of each member, ``[member, sentence]``."""
        self.original_rows, self.lengths = (x.gather(1, sentences) for x in (self.original_rows, self.lengths))
        member_index = torch.arange(len(sentences), device=sentences.device).unsqueeze(1)
        self.memory = self.memory[member_index, sentences]
        written = self._rows_of(sentences)
        for first, second in self.caches or ():
            first.select(written)
            second.select(sentences if self.model.attends_to_source else written)

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
        if not changed and not on_cuda(rows) and bool((rows == torch.arange(rows.shape[1], device=rows.device)).all()):
            return
        for first, second in self.caches or ():
            first.select(rows)
            if not self.model.attends_to_source:
                second.select(rows)

    def _rows_of(self, sentences: Tensor) -> Tensor:
        """Return the rows of the given sentences, ``[member, sentence · beam_size]``."""
        hypotheses = torch.arange(self.beam_size, device=sentences.device)
        return (sentences.unsqueeze(-1) * self.beam_size + hypotheses).flatten(1)
