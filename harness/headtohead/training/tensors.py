"""A split as padded tensors on the device, and batches cut out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headtohead.data import Split
from headtohead.data.vocabulary import PAD


@dataclass(frozen=True)
class Batch:
    """Ids and live lengths; ``reads`` is what the decoder is given, ``writes`` what it must say.

    All are ``[member, batch, time]`` or ``[member, batch]``.
    """

    source: Tensor
    source_lengths: Tensor
    reads: Tensor
    writes: Tensor
    target_lengths: Tensor

    def part(self, rows: slice) -> Batch:
        """Return some of the rows."""
        return Batch(
            self.source[:, rows], self.source_lengths[:, rows], self.reads[:, rows],
            self.writes[:, rows], self.target_lengths[:, rows],
        )  # fmt: skip


@dataclass(frozen=True)
class SplitTensors:
    """All pairs of a split, padded to its longest."""

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    host_target_lengths: Tensor

    @classmethod
    def of(cls, split: Split, device: torch.device) -> SplitTensors:
        """Move a split to the device."""
        source, source_lengths = _pad(split.source)
        target, target_lengths = _pad(split.target)
        return cls(
            source.to(device), source_lengths.to(device),
            target.to(device), (target_lengths - 1).to(device), target_lengths - 1,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: Tensor, source_time: int, target_time: int) -> Batch:
        """Cut out rows ``[member, batch]``, padded to the given times.

        ``target_time`` counts what the decoder reads: one less than the target's tokens.
        """
        target = self.target[rows, : target_time + 1]
        return Batch(
            source=self.source[rows, :source_time],
            source_lengths=self.source_lengths[rows],
            reads=target[:, :, :-1],
            writes=target[:, :, 1:],
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
        return [
            part
            for value in lengths.unique()
            for part in torch.nonzero(lengths == value).flatten().split(size)
        ]

    def live(self, rows: Tensor) -> int:
        """Return the largest number of target tokens that a member has in rows ``[member, batch]``.

        Read from the host's copy of the lengths: nothing waits for the device.
        """
        return int(self.host_target_lengths[rows].sum(dim=1).max())

    def times(self, rows: Tensor) -> tuple[int, int]:
        """Return the longest source and target among rows."""
        return int(self.source_lengths[rows].max()), int(self.target_lengths[rows].max())


def _pad(sequences: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    longest = int(lengths.max()) if len(lengths) else 0
    padded = torch.full((len(sequences), longest), PAD, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.from_numpy(np.asarray(sequence, dtype=np.int64))
    return padded, lengths
