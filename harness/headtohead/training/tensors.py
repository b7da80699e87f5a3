"""A split as padded tensors on the device, and batches selected from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headtohead.data import Split
from headtohead.model.batch import IGNORE_INDEX, Batch


@dataclass(frozen=True)
class SplitTensors:
    """All pairs of a split, padded to its longest sentence.

    Args:
        source: Ids ``[row, time]``, followed by the decoder inputs if ``joined``.
        source_lengths: Tokens of ``source``, ``[row]``.
        target: Decoder inputs and labels, ``[row, 2, time]``, in a tensor so that a single lookup
            selects both.
        target_lengths: Decoder inputs, ``[row]``; 0 for a target with a single token and shifted labels.
        num_labels: Labels, ``[row]``, on the CPU: as many as decoder inputs, or fewer in sequences with labels.
        host_source_lengths: ``source_lengths`` on the CPU, where reading them does not wait for the device.
        host_target_lengths: ``target_lengths`` on the CPU.
        prompt_lengths: Source tokens without decoder inputs, ``[row]``, on the CPU.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    num_labels: Tensor
    host_source_lengths: Tensor
    host_target_lengths: Tensor
    prompt_lengths: Tensor

    @classmethod
    def of(
        cls,
        split: Split,
        device: torch.device,
        *,
        change: Callable[[Batch], Batch] = lambda batch: batch,
        pads: tuple[int | None, int | None] = (0, 0),
        width: int = 0,
        joined: bool = False,
    ) -> SplitTensors:
        """Return a split as tensors on a device.

        Args:
            split: The pairs.
            device: The device.
            change: Receives all pairs as the batch of one member, and returns them as they are trained and evaluated.
            pads: Padding ids of sources and decoder inputs; None, as in a vocabulary without padding token, is 0.
            width: Minimum padded length in tokens.
            joined: Whether the model reads source and decoder input as one sequence.
        """
        source_pad, target_pad = pads
        source, source_lengths = _pad(split.source, source_pad or 0, width)
        targets, lengths = _pad(split.target, target_pad or 0, width)
        next_tokens = split.labels or [ids[1:] for ids in split.target]
        labels, _ = _pad(next_tokens, IGNORE_INDEX, targets.shape[1])
        tensors = source, source_lengths, targets, labels, lengths - 1
        pairs = change(Batch(*(tensor.unsqueeze(0) for tensor in tensors)))
        source, source_lengths = pairs.source[0], pairs.source_lengths[0]
        inputs, input_lengths = pairs.decoder_input_ids[0], pairs.target_lengths[0]
        prompt_lengths = source_lengths
        if joined:
            sequences = []
            for row in range(len(source)):
                prompt = source[row, : source_lengths[row]]
                sequences.append(torch.cat([prompt, inputs[row, : input_lengths[row]]]).numpy())
            source, source_lengths = _pad(sequences, source_pad or 0, width)
        return cls(
            source.to(device),
            source_lengths.to(device),
            torch.stack([inputs, pairs.labels[0]], dim=1).to(device),
            input_lengths.to(device),
            pairs.num_labels[0],
            source_lengths,
            input_lengths,
            prompt_lengths,
        )

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: Tensor, source_time: int, target_time: int) -> Batch:
        """Return the batch of rows ``[member, batch]``, padded to the given times.

        ``target_time`` is the number of decoder inputs: by default, target tokens minus 1.
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
        """Return rows in order, in batches of ``size`` sentences."""
        return list(torch.arange(len(self)).split(size))

    def unpadded_batches(self, size: int, by_target: bool) -> list[Tensor]:
        """Return batches of up to ``size`` sentences of equal source length, without padding.

        ``by_target`` requires equal target lengths too, as teacher forcing needs.
        """
        lengths = self.prompt_lengths
        if by_target:
            lengths = lengths * (int(self.host_target_lengths.max()) + 1) + self.host_target_lengths
        batches = []
        for value in lengths.unique():
            rows = torch.nonzero(lengths == value).flatten()
            batches.extend(rows.split(size))
        return batches

    def num_target_tokens(self, rows: Tensor) -> int:
        """Return the largest number of labels of a member in rows ``[member, batch]``, at least 1.

        It is computed from the lengths on the host, without synchronising with the device.
        """
        return max(1, int(self.num_labels[rows].sum(dim=1).max()))

    def times(self, rows: Tensor) -> tuple[int, int]:
        """Return the longest source and the largest number of decoder inputs (at least 1) among rows."""
        return int(self.host_source_lengths[rows].max()), max(
            1, int(self.host_target_lengths[rows].max())
        )


def _pad(sequences: Sequence[np.ndarray], fill: int, width: int) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    longest = max(width, int(lengths.max())) if len(lengths) else width
    padded = torch.full((len(sequences), longest), fill, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.from_numpy(np.asarray(sequence, dtype=np.int64))
    return padded, lengths
