"""Token-budget batches of similar length, whose shapes do not depend on the seed.

All members of a stack walk through the same sequence of batch shapes; which pairs fill them is each
member's own draw. So a run sees the same batches alone and in a stack, and few shapes occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

STEP = 4
"""Lengths are grouped in steps of this many tokens."""


@dataclass(frozen=True)
class Bucket:
    """Pairs of similar length: their rows, and the times that their batches are padded to."""

    rows: np.ndarray
    source_time: int
    target_time: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """One batch of an epoch: a range of a bucket's permuted rows."""

    bucket: int
    start: int
    size: int


class BatchPlan:
    """The batches of every epoch of one training split.

    Args:
        source_lengths: Tokens of each source, boundary tokens included.
        target_lengths: Tokens that the decoder reads for each target.
        batch_tokens: Budget: rows times the longer padded side of a batch stays within it, except
            that a batch has at least one row.
    """

    def __init__(
        self, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int
    ) -> None:
        longer = np.maximum(source_lengths, target_lengths)
        steps = -(-longer // STEP)
        groups = [np.flatnonzero(steps == step) for step in np.unique(steps)]
        self.buckets = [
            _bucket(rows, source_lengths, target_lengths, batch_tokens)
            for rows in _merge_small(groups, longer, batch_tokens)
        ]
        self.steps_per_epoch = sum(len(bucket.sizes) for bucket in self.buckets)

    def slots(self, epoch: int) -> list[Slot]:
        """Return the batches of an epoch in the order that all seeds share."""
        slots = []
        for index, bucket in enumerate(self.buckets):
            starts = np.cumsum([0, *bucket.sizes[:-1]])
            slots += [
                Slot(index, int(start), size)
                for start, size in zip(starts, bucket.sizes, strict=True)
            ]
        order = np.random.default_rng([0x68326800, epoch]).permutation(len(slots))
        return [slots[position] for position in order]

    def permuted_rows(self, seed: int, epoch: int) -> list[Tensor]:
        """Return each bucket's rows in the order in which one run visits them."""
        generator = np.random.default_rng([0x68326801, seed, epoch])
        return [torch.from_numpy(generator.permutation(bucket.rows)) for bucket in self.buckets]


def _merge_small(
    groups: Sequence[np.ndarray], longer: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Join groups that would not fill half a batch to the next longer one."""
    merged: list[np.ndarray] = []
    waiting = np.empty(0, dtype=np.int64)
    for rows in groups:
        waiting = np.concatenate([waiting, rows])
        if len(waiting) * int(longer[rows].max()) * 2 >= batch_tokens:
            merged.append(waiting)
            waiting = np.empty(0, dtype=np.int64)
    if len(waiting):
        merged.append(waiting)
    return merged


def _bucket(
    rows: np.ndarray, source_lengths: np.ndarray, target_lengths: np.ndarray, batch_tokens: int
) -> Bucket:
    source_time, target_time = int(source_lengths[rows].max()), int(target_lengths[rows].max())
    most = max(1, batch_tokens // max(source_time, target_time))
    batches = -(-len(rows) // most)
    # Batches of nearly equal size, so that no step is taken on a handful of left-over pairs.
    sizes = tuple(len(part) for part in np.array_split(rows, batches))
    return Bucket(np.sort(rows), source_time, target_time, sizes)
