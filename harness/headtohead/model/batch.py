"""``Batch``: the object that is passed whole from a split to the model and its loss."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headtohead.data.vocabulary import IGNORE_INDEX as IGNORE_INDEX


@dataclass(frozen=True)
class Batch:
    """Sentence pairs of all members, padded.

    Args:
        source: Token ids ``[member, batch, source time]``, padding last. For a decoder-only model, source and decoder
            input of each pair as one sequence.
        source_lengths: Tokens of ``source`` without padding, ``[member, batch]``.
        decoder_input_ids: Token ids ``[member, batch, target time]``, padding last.
        labels: Token ids ``[member, batch, target time]``, `IGNORE_INDEX` where there is no label.
        target_lengths: Tokens of ``decoder_input_ids`` without padding, ``[member, batch]``.
    """

    source: Tensor
    source_lengths: Tensor
    decoder_input_ids: Tensor
    labels: Tensor
    target_lengths: Tensor

    @property
    def num_labels(self) -> Tensor:
        """Number of labels, ``[member, batch]``."""
        return (self.labels != IGNORE_INDEX).sum(-1)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sentences per member, source time and target time."""
        return (*self.source.shape[1:], self.decoder_input_ids.shape[-1])

    def part(self, rows: slice) -> Batch:
        """Return the batch of some sentences of each member."""
        return Batch(*(tensor[:, rows] for tensor in vars(self).values()))
