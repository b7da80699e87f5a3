"""Batches whose shapes do not depend on the seed: buckets of similar lengths, or shuffled sentences.

All members of a stack have the same sequence of batch shapes. The pairs in each batch depend on the
member's seed only, so a run has the same batches alone and in a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headtohead.schema.run_config import RunConfig

STEP = 4
"""Coarse buckets group lengths in steps of this many tokens."""


@dataclass(frozen=True)
class Bucket:
    """Pairs of similar length: their row indices, the padded lengths in tokens, and the batch sizes."""

    rows: np.ndarray
    source_time: int
    target_time: int
    sizes: tuple[int, ...]


class Batches:
    """The batches of every epoch of one training split, from the lengths of its sources and targets in tokens.

    The lengths of source and target alone decide which pairs are in a batch, so that both architectures train on
    the same batches. ``joined`` adds the target to the padded source length, as a decoder-only model reads it.
    """

    lengths: tuple[np.ndarray, np.ndarray]
    steps_per_epoch: int

    def batches(
        self, seeds: Sequence[int], epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the batches of an epoch.

        Args:
            seeds: Seed of each member.
            epoch: Number of the epoch, from 0.
            start: Number of batches to skip.

        Returns:
            Row indices ``[member, batch]`` and the padded lengths of source (with the target if joined) and target
            in tokens.
        """
        raise NotImplementedError

    @property
    def tokens_per_epoch(self) -> int:
        """Number of target tokens that the decoder reads, padding left out."""
        return int(self.lengths[1].sum())

    def padding(self) -> dict[str, float]:
        """Return the fraction of padding tokens in an epoch by side, of the first epoch where epochs differ."""
        padded = np.zeros(2, dtype=np.int64)
        for rows, *times in self.batches([0], 0):
            padded += np.array(times) * rows.shape[1]
        totals = zip(("source", "target"), self.lengths, padded, strict=True)
        return {side: 1 - float(lengths.sum() / total) for side, lengths, total in totals}


class BatchPlan(Batches):
    """Batches of pairs of similar length within a budget of tokens.

    Args:
        source_lengths: Tokens of each source, boundary tokens included.
        target_lengths: Decoder input tokens of each target.
        batch_tokens: Upper bound of rows times the longer padded side. A batch has at least one row.
        exact: Group pairs whose lengths are equal on both sides where they fill half a batch: almost
            no padding, many shapes.
        joined: Whether the model reads source and target as one sequence.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        batch_tokens: int,
        exact: bool = False,
        joined: bool = False,
    ) -> None:
        self.lengths = source_lengths + target_lengths * joined, target_lengths
        longer = np.maximum(source_lengths, target_lengths)
        steps = longer if exact else -(-longer // STEP)
        groups = [np.flatnonzero(steps == step) for step in np.unique(steps)]
        groups = _merge_small(groups, longer, batch_tokens)
        if exact:
            surplus = source_lengths - target_lengths
            groups = [
                part
                for rows in groups
                for part in _split_by_surplus(rows, surplus, longer, batch_tokens)
            ]
        self.buckets = []
        for rows in groups:
            source_time, target_time = (int(side[rows].max()) for side in self.lengths)
            batches = -(-len(rows) // max(1, batch_tokens // max(1, int(longer[rows].max()))))
            # Batches of nearly equal size, so that no step is computed on a few remaining pairs.
            sizes = tuple(len(part) for part in np.array_split(rows, batches))
            self.buckets.append(Bucket(np.sort(rows), source_time, max(1, target_time), sizes))
        self.steps_per_epoch = sum(len(bucket.sizes) for bucket in self.buckets)

    def batches(
        self, seeds: Sequence[int], epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the batches of an epoch (see ``Batches.batches``); their order does not depend on the seed."""
        slots = [
            (index, first, size)
            for index, bucket in enumerate(self.buckets)
            for first, size in zip(
                np.cumsum([0, *bucket.sizes[:-1]]).tolist(), bucket.sizes, strict=True
            )
        ]
        generators = [np.random.default_rng([0x68326801, seed, epoch]) for seed in seeds]
        permuted = [
            torch.from_numpy(
                np.stack([generator.permutation(bucket.rows) for generator in generators])
            )
            for bucket in self.buckets
        ]
        order = np.random.default_rng([0x68326800, epoch]).permutation(len(slots))
        for index, first, size in (slots[position] for position in order[start:]):
            bucket = self.buckets[index]
            yield permuted[index][:, first : first + size], bucket.source_time, bucket.target_time


class SentenceBatches(Batches):
    """Shuffled batches with a fixed number of sentences, like the data loaders of the notebooks.

    With fixed padded lengths, each seed shuffles all pairs. Without them a batch is padded to its
    longest sentence. Then the lengths must not depend on the seed, or a run would have other padding
    alone than in a stack: all seeds share one order of lengths, and each seed shuffles the pairs
    with equal source and target lengths.

    Args:
        source_lengths: Tokens of each source, boundary tokens included.
        target_lengths: Decoder input tokens of each target.
        size: Pairs of a batch; the last batch can have fewer.
        times: Padded lengths of source and target; None pads each batch to its longest sentence.
        joined: Whether the model reads source and target as one sequence.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        size: int,
        times: tuple[int, int] | None = None,
        joined: bool = False,
    ) -> None:
        self.lengths = source_lengths + target_lengths * joined, target_lengths
        self.size, self.times = size, times
        self.steps_per_epoch = -(-len(source_lengths) // size)
        _, self._kinds = np.unique(
            np.stack([source_lengths, target_lengths]), axis=1, return_inverse=True
        )
        self._kinds = self._kinds.reshape(-1)

    def batches(
        self, seeds: Sequence[int], epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the batches of an epoch (see ``Batches.batches``)."""
        shared = np.random.default_rng([0x68326802, epoch]).permutation(len(self._kinds))
        orders = np.stack([self._order(shared, seed, epoch) for seed in seeds])
        for first in range(start * self.size, len(shared), self.size):
            rows = orders[:, first : first + self.size]
            source, target = (int(lengths[rows[0]].max()) for lengths in self.lengths)
            yield torch.from_numpy(rows), *(self.times or (source, max(1, target)))

    def _order(self, shared: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        generator = np.random.default_rng([0x68326803, seed, epoch])
        if self.times is not None:
            return generator.permutation(shared)
        substitutes = np.empty_like(shared)
        by_kind = np.argsort(self._kinds, kind="stable")
        substitutes[by_kind] = np.lexsort((generator.random(len(shared)), self._kinds))
        order: np.ndarray = substitutes[shared]
        return order


def _merge_small(
    groups: Sequence[np.ndarray], longer: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Merge a group that does not fill half a batch with the next longer group."""
    merged: list[np.ndarray] = []
    waiting = np.empty(0, dtype=np.int64)
    for rows in groups:
        waiting = np.concatenate([waiting, rows])
        if _fills_half(waiting, longer, batch_tokens):
            merged.append(waiting)
            waiting = np.empty(0, dtype=np.int64)
    return [*merged, waiting] if len(waiting) else merged


def _split_by_surplus(
    rows: np.ndarray, surplus: np.ndarray, longer: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Split pairs by source length minus target length into groups that fill at least half a batch."""
    groups = [rows[surplus[rows] == difference] for difference in np.unique(surplus[rows])]
    parts = _merge_small(groups, longer, batch_tokens)
    if len(parts) > 1 and not _fills_half(parts[-1], longer, batch_tokens):
        parts[-2:] = [np.concatenate(parts[-2:])]
    return parts


def _fills_half(rows: np.ndarray, longer: np.ndarray, batch_tokens: int) -> bool:
    return len(rows) * int(longer[rows].max()) * 2 >= batch_tokens


def make_batches(
    config: RunConfig,
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    longest: Mapping[str, int],
) -> Batches:
    """Return the training batches of a configuration.

    Args:
        config: The run's configuration.
        source_lengths: Tokens of each source of the training part, boundary tokens included.
        target_lengths: Tokens that the decoder reads for each target.
        longest: Tokens of the longest sentence of the corpus, by side.
    """
    train, joined, lengths = (
        config.train,
        "encoder" not in config.roles,
        (source_lengths, target_lengths),
    )
    if train.batch_size is None:
        return BatchPlan(*lengths, train.batch_tokens, train.length_buckets == "exact", joined)
    padded = padded_length(config, longest)
    times = None
    if padded is not None:  # targets are padded before their last token becomes a label
        times = padded, max(1, padded - 1, int(target_lengths.max(initial=1)))
    return SentenceBatches(*lengths, train.batch_size, times, joined)


def padded_length(config: RunConfig, longest: Mapping[str, int]) -> int | None:
    """Return the length that all training sentences are padded to, or None if it depends on the batch."""
    pad_to = config.train.pad_to
    if config.train.batch_size is None or pad_to == "batch":
        return None
    return max(longest.values()) if pad_to == "corpus" else pad_to
