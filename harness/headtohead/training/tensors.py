"""A split as padded tensors on the device, and batches cut out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headtohead.data import Split, Vocabulary

IGNORE_INDEX = -100
"""Stands where the decoder must write nothing: no word has this id, whatever the vocabulary."""


@dataclass(frozen=True)
class Batch:
    """Ids and live lengths; ``reads`` is what the decoder is given, ``writes`` what it must say.

    All are ``[member, batch, time]`` or ``[member, batch]``.
    """

    source: Tensor
    source_lengths: Tensor
    decoder_input_ids: Tensor
    labels: Tensor
    target_lengths: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows of each member, source time, target time."""
        return (*self.source.shape[1:], self.decoder_input_ids.shape[-1])

    def part(self, rows: slice) -> Batch:
        """Return some of the rows."""
        return Batch(
            self.source[:, rows],
            self.source_lengths[:, rows],
            self.decoder_input_ids[:, rows],
            self.labels[:, rows],
            self.target_lengths[:, rows],
        )


@dataclass(frozen=True)
class SplitTensors:
    """All pairs of a split, padded to its longest.

    ``source`` is ``[row, time]``; ``target`` holds what the decoder reads and what it must write,
    ``[row, 2, time]``, so that both come with one look-up. ``target_lengths`` count the tokens to
    be written; none where the only token of a target has nothing behind it.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    host_target_lengths: Tensor

    @classmethod
    def of(
        cls,
        split: Split,
        device: torch.device,
        *,
        shift_targets: bool = True,
        pads: tuple[int, int] = (0, 0),
        width: int = 0,
    ) -> SplitTensors:
        """Move a split to the device.

        Args:
            split: The pairs.
            device: Where to.
            shift_targets: Whether a target token predicts the next token instead of itself.
            pads: Ids that fill sources and read targets up; lengths decide what is live.
            width: Tokens that sentences are padded to at least.
        """
        source, source_lengths = _pad(split.source, pads[0], width)
        decoder_input_ids, lengths = _pad(split.target, pads[1], width)
        shift = int(shift_targets)
        labels, _ = _pad([ids[shift:] for ids in split.target], IGNORE_INDEX, decoder_input_ids.shape[1])
        written = lengths - shift
        return cls(
            source.to(device),
            source_lengths.to(device),
            torch.stack([decoder_input_ids, labels], dim=1).to(device),
            written.to(device),
            written,
        )

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: Tensor, source_time: int, target_time: int) -> Batch:
        """Cut out rows ``[member, batch]``, padded to the given times.

        ``target_time`` counts what the decoder reads and writes: where each token predicts the
        next, one less than the target's tokens.
        """
        target = self.target[rows, :, :target_time]
        return Batch(
            source=self.source[rows, :source_time],
            source_lengths=self.source_lengths[rows],
            decoder_input_ids=target[:, :, 0],
            labels=target[:, :, 1],
            target_lengths=self.target_lengths[rows],
        )

    def padded_batches(self, size: int) -> list[Tensor]:
        """Return rows in their order, ``size`` at a time: batches as a user would make them."""
        return list(torch.arange(len(self)).split(size))

    def unpadded_batches(self, size: int, by_target: bool) -> list[Tensor]:
        """Return rows of equal length together, so that nothing is padded.

        Each row is then computed as in a batch of one. ``by_target`` asks for equal target lengths
        too, which teacher forcing needs.
        """
        lengths = self.source_lengths.cpu()
        if by_target:
            lengths = lengths * (int(self.target_lengths.max()) + 1) + self.target_lengths.cpu()
        return [part for value in lengths.unique() for part in torch.nonzero(lengths == value).flatten().split(size)]

    def live(self, rows: Tensor) -> int:
        """Return the most target tokens that a member has in rows ``[member, batch]``, at least 1.

        Read from the host's copy of the lengths: nothing waits for the device.
        """
        return max(1, int(self.host_target_lengths[rows].sum(dim=1).max()))

    def times(self, rows: Tensor) -> tuple[int, int]:
        """Return the longest source and target among rows, at least one token each."""
        return int(self.source_lengths[rows].max()), max(1, int(self.target_lengths[rows].max()))


def pads_of(source: Vocabulary, target: Vocabulary) -> tuple[int, int]:
    """Return the ids that fill short sentences up; 0 where a vocabulary has none of its own."""
    return source.pad or 0, target.pad or 0


def _pad(sequences: Sequence[np.ndarray], fill: int, width: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    longest = max(width, int(lengths.max())) if len(lengths) else width
    padded = torch.full((len(sequences), longest), fill, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.from_numpy(np.asarray(sequence, dtype=np.int64))
    return padded, lengths
