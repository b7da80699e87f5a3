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

    def of_epoch(
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
        for rows, source_time, target_time in self.of_epoch([0], 0):
            pairs = rows.shape[1]
            padded += [pairs * source_time, pairs * target_time]
        source_lengths, target_lengths = self.lengths
        return {
            "source": 1 - float(source_lengths.sum() / padded[0]),
            "target": 1 - float(target_lengths.sum() / padded[1]),
        }


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
        self.lengths = _read_lengths(source_lengths, target_lengths, joined)
        longer = np.maximum(source_lengths, target_lengths)
        if exact:
            surplus = source_lengths - target_lengths
            groups = []
            for rows in _merge_small(_groups_of_equal(longer), longer, batch_tokens):
                groups += _split_by_surplus(rows, surplus, longer, batch_tokens)
        else:
            steps = -(-longer // STEP)
            groups = _merge_small(_groups_of_equal(steps), longer, batch_tokens)
        self.buckets = [self._bucket(rows, longer, batch_tokens) for rows in groups]
        self.steps_per_epoch = sum(len(bucket.sizes) for bucket in self.buckets)

    def _bucket(self, rows: np.ndarray, longer: np.ndarray, batch_tokens: int) -> Bucket:
        """Return the bucket of a group, in the smallest number of batches that the budget of tokens permits."""
        longest = max(1, int(longer[rows].max()))
        rows_of_batch = max(1, batch_tokens // longest)
        batches = -(-len(rows) // rows_of_batch)
        # Batches of nearly equal size, so that no step is computed on a few remaining pairs.
        sizes = tuple(len(part) for part in np.array_split(rows, batches))
        source_lengths, target_lengths = self.lengths
        source_time = int(source_lengths[rows].max())
        target_time = int(target_lengths[rows].max())
        return Bucket(np.sort(rows), source_time, max(1, target_time), sizes)

    def of_epoch(
        self, seeds: Sequence[int], epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the batches of an epoch (see `Batches.of_epoch`); their order does not depend on the seed."""
        generators = [np.random.default_rng([0x68326801, seed, epoch]) for seed in seeds]
        batches: list[tuple[Tensor, int, int]] = []
        for bucket in self.buckets:
            permuted = [generator.permutation(bucket.rows) for generator in generators]
            rows = torch.from_numpy(np.stack(permuted))
            for batch in rows.split(list(bucket.sizes), dim=1):
                batches.append((batch, bucket.source_time, bucket.target_time))
        order = np.random.default_rng([0x68326800, epoch]).permutation(len(batches))
        for position in order[start:]:
            yield batches[position]


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
        self.lengths = _read_lengths(source_lengths, target_lengths, joined)
        self.size = size
        self.times = times
        self.steps_per_epoch = -(-len(source_lengths) // size)
        both_lengths = np.stack([source_lengths, target_lengths])
        _, kinds = np.unique(both_lengths, axis=1, return_inverse=True)
        self._kinds = kinds.reshape(-1)
        """Per pair: the index of its source and target length among all combinations that occur."""

    def of_epoch(
        self, seeds: Sequence[int], epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, int, int]]:
        """Yield the batches of an epoch (see `Batches.of_epoch`)."""
        shared = np.random.default_rng([0x68326802, epoch]).permutation(len(self._kinds))
        orders = np.stack([self._order(shared, seed, epoch) for seed in seeds])
        source_lengths, target_lengths = self.lengths
        for first in range(start * self.size, len(shared), self.size):
            rows = orders[:, first : first + self.size]
            if self.times is None:
                # The lengths of a batch are those of every member.
                source_time = int(source_lengths[rows[0]].max())
                target_time = int(target_lengths[rows[0]].max())
                yield torch.from_numpy(rows), source_time, max(1, target_time)
            else:
                yield torch.from_numpy(rows), *self.times

    def _order(self, shared: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """Return the order of a seed: without fixed lengths, each pair of ``shared`` becomes one of equal lengths."""
        generator = np.random.default_rng([0x68326803, seed, epoch])
        if self.times is not None:
            return generator.permutation(shared)
        by_kind = np.argsort(self._kinds, kind="stable")
        shuffled_by_kind = np.lexsort((generator.random(len(shared)), self._kinds))
        substitutes = np.empty_like(shared)
        substitutes[by_kind] = shuffled_by_kind
        order: np.ndarray = substitutes[shared]
        return order


def _read_lengths(
    source_lengths: np.ndarray, target_lengths: np.ndarray, joined: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of each padded sequence by side; a joined source contains its target."""
    if joined:
        return source_lengths + target_lengths, target_lengths
    return source_lengths, target_lengths


def _groups_of_equal(values: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each distinct value, the smallest value first."""
    return [np.flatnonzero(values == value) for value in np.unique(values)]


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
    if len(waiting):
        merged.append(waiting)
    return merged


def _split_by_surplus(
    rows: np.ndarray, surplus: np.ndarray, longer: np.ndarray, batch_tokens: int
) -> list[np.ndarray]:
    """Split pairs by source length minus target length into groups that fill at least half a batch."""
    groups = [rows[indices] for indices in _groups_of_equal(surplus[rows])]
    parts = _merge_small(groups, longer, batch_tokens)
    if len(parts) > 1 and not _fills_half(parts[-1], longer, batch_tokens):
        small = parts.pop()
        parts[-1] = np.concatenate([parts[-1], small])
    return parts


def _fills_half(rows: np.ndarray, longer: np.ndarray, batch_tokens: int) -> bool:
    tokens = len(rows) * int(longer[rows].max())
    return 2 * tokens >= batch_tokens


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
    train = config.train
    joined = "encoder" not in config.roles
    if train.batch_size is None:
        exact = train.length_buckets == "exact"
        return BatchPlan(source_lengths, target_lengths, train.batch_tokens, exact, joined)
    padded = padded_length(config, longest)
    times = None
    if padded is not None:  # targets are padded before their last token becomes a label
        times = padded, max(1, padded - 1, int(target_lengths.max(initial=1)))
    return SentenceBatches(source_lengths, target_lengths, train.batch_size, times, joined)


def padded_length(config: RunConfig, longest: Mapping[str, int]) -> int | None:
    """Return the length that all training sentences are padded to, or None if it depends on the batch."""
    pad_to = config.train.pad_to
    if config.train.batch_size is None or pad_to == "batch":
        return None
    if pad_to == "corpus":
        return max(longest.values())
    return pad_to
