"""Splits of sentence pairs into train, valid and test by whole groups, so that no group leaks.

Every shuffle uses ``numpy.random.RandomState``, because its streams are frozen: a seed gives the
same split under every version of numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError

PARTS = ("train", "valid", "test")

WINDOW = 64
"""Number of tokens of a text that are compared with training."""

RECURRENCE = 0.001
"""Smallest fraction of recurring windows that is a leak of a text.

Of 120,000 English sentences, each once, 0.005 % of the windows are in another part.
"""
LEAKY_SHARE = 0.05
"""Share of the test set in training from which a split is labelled leaky.

It is the level of the tests: a smaller part of the test set cannot carry a score. With a margin, reports compare the
largest effect of the leak with it instead.
"""

Labels = NDArray[np.int64]


def components(*keys: Sequence[str]) -> Labels:
    """Return the connected component of each row; rows that share a value of a key are connected."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(keys[0])
    firsts: list[int] = []
    for column in keys:
        first: dict[str, int] = {}
        firsts += [first.setdefault(value, row) for row, value in enumerate(column)]
    edges = np.tile(np.arange(count), len(keys)), np.array(firsts, dtype=np.int64)
    graph = coo_array((np.ones(len(firsts), dtype=bool), edges), shape=(count, count))
    labels: Labels = connected_components(graph, directed=False)[1].astype(np.int64)
    return labels


def divide(
    labels: Labels, chosen: Sequence[str | None], *, valid: float, test: float, seed: int
) -> dict[str, Labels]:
    """Return the rows of each part, in ascending order.

    Rows with a part chosen by the dataset stay in that part, and no other rows are added to valid or
    test if the dataset fills them. The other rows are assigned by whole groups in shuffled order; a
    group that is larger than the remaining size of valid and test goes to train.

    Args:
        labels: The group of each row.
        chosen: The part that the dataset chose for each row, or None.
        valid: Size of the validation part: a fraction below 1 of the other rows, or a number of rows.
        test: Size of the test part, with the same meaning.
        seed: Seed of the shuffle.

    Raises:
        HeadToHeadError: If a part would be empty.
    """
    parts = {part: [row for row, name in enumerate(chosen) if name == part] for part in PARTS}
    free = np.array([row for row, name in enumerate(chosen) if name is None], dtype=np.int64)
    missing = {
        part: int(size) if size >= 1 else max(1, round(size * len(free)))
        for part, size in (("test", test), ("valid", valid))
        if not parts[part]
    }
    groups: dict[int, list[int]] = {}
    for row in free.tolist():
        groups.setdefault(int(labels[row]), []).append(row)
    members = list(groups.values())
    for group in (members[index] for index in shuffled(len(members), seed)):
        part = next((name for name, count in missing.items() if 0 < len(group) <= count), "train")
        parts[part] += group
        if part in missing:
            missing[part] -= len(group)
    for part in PARTS:
        if not parts[part]:
            if not len(free):
                raise HeadToHeadError(
                    f"every pair has a part, and none is for {part}; add pairs for {part}"
                )
            largest = int(np.bincount(labels).max()) if len(labels) else 0
            raise HeadToHeadError(
                f"the split leaves no pair for {part}: of {len(labels)} pairs the largest group has {largest}, and "
                "groups are not split; add pairs, lower data.valid and data.test, or set data.split: row"
            )
    return {part: np.sort(np.array(rows, dtype=np.int64)) for part, rows in parts.items()}


def shuffled(count: int, seed: int) -> Labels:
    """Return a random permutation of the rows 0 to ``count`` - 1."""
    return np.random.RandomState(seed).permutation(count).astype(np.int64)


def text_leak(train: NDArray[np.integer], test: NDArray[np.integer]) -> float:
    """Return the fraction of the tokens of a test text in a window that occurs anywhere in training.

    It is 0 if less than ``RECURRENCE`` of the windows of ``WINDOW`` tokens occur in training, which
    happens by chance. Windows are compared by polynomial hashes modulo 2^64: a hash is a difference
    of prefix sums, divided by a power of the base.
    """
    length, base = min(WINDOW, len(test)), 0x9E3779B97F4A7C15

    def powers(factor: int, count: int) -> NDArray[np.uint64]:
        factors = np.full(count + 1, factor, dtype=np.uint64)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint64)

    def windows(ids: NDArray[np.integer]) -> NDArray[np.uint64]:
        terms = (ids + 1).astype(np.uint64) * powers(base, len(ids))[:-1]
        sums = np.cumsum(np.concatenate([[np.uint64(0)], terms]), dtype=np.uint64)
        count = max(0, len(ids) - length + 1)
        return (sums[length:] - sums[:count]) * powers(pow(base, -1, 2**64), count)[:count]

    recurs = np.isin(windows(test), windows(train))
    if recurs.mean() < RECURRENCE:
        return 0.0
    (starts,) = np.nonzero(recurs)
    changes = np.zeros(len(test) + 1, dtype=np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + length, -1)
    is_leaked = np.cumsum(changes)[:-1] > 0
    return float(is_leaked.mean())


def leak(
    train: Iterable[str], test: Sequence[str], weights: Sequence[float] | None = None
) -> float:
    """Return the fraction of test sentences that are also in train, by default with equal weights."""
    seen = set(train)
    weights = [1.0] * len(test) if weights is None else weights
    leaked = sum(weight for sentence, weight in zip(test, weights, strict=True) if sentence in seen)
    return float(leaked / (sum(weights) or 1.0))
