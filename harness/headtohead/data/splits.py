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

HASH_BASE = 0x9E3779B97F4A7C15
"""Base of the polynomial hashes of windows: an odd number, so that it has an inverse modulo 2^64."""

Labels = NDArray[np.int64]


def components(*keys: Sequence[str]) -> Labels:
    """Return the connected component of each row; rows that share a value of a key are connected."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(keys[0])
    # Per key and row: the first row with the same value, to which the row is connected.
    first_rows: list[int] = []
    for column in keys:
        first_row: dict[str, int] = {}
        for row, value in enumerate(column):
            first_rows.append(first_row.setdefault(value, row))
    rows = np.tile(np.arange(count), len(keys))
    edges = (rows, np.array(first_rows, dtype=np.int64))
    graph = coo_array((np.ones(len(rows), dtype=bool), edges), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    as_integers: Labels = labels.astype(np.int64)
    return as_integers


def divide(
    labels: Labels, chosen: Sequence[str | None], *, valid: float, test: float, seed: int
) -> dict[str, Labels]:
    """Return the rows of each part, in ascending order.

    Rows with a part chosen by the dataset stay in that part, even if other rows of their group are in another one;
    such a leak is reported with every result. No other rows are added to valid or test if the dataset fills them. The
    other rows are assigned by whole groups in shuffled order; a group that is larger than the remaining size of valid
    and test goes to train.

    Args:
        labels: The group of each row.
        chosen: The part that the dataset chose for each row, or None.
        valid: Size of the validation part: a fraction below 1 of the other rows, or a number of rows.
        test: Size of the test part, with the same meaning.
        seed: Seed of the shuffle.

    Raises:
        HeadToHeadError: If a part would be empty, or the dataset chose an unknown part.
    """
    parts = {part: [row for row, name in enumerate(chosen) if name == part] for part in PARTS}
    free = [row for row, name in enumerate(chosen) if name is None]
    unknown = {*chosen} - {*PARTS, None}
    if unknown:
        raise HeadToHeadError(
            f"a pair of the dataset has the part '{unknown.pop()}'; expected train, valid or test"
        )
    remaining: dict[str, int] = {}  # the number of pairs that a part still lacks
    for part, size in (("test", test), ("valid", valid)):
        if not parts[part]:
            remaining[part] = int(size) if size >= 1 else max(1, round(size * len(free)))
    groups: dict[int, list[int]] = {}
    for row in free:
        groups.setdefault(int(labels[row]), []).append(row)
    groups_in_order = list(groups.values())
    for index in shuffled(len(groups_in_order), seed):
        group = groups_in_order[index]
        fitting = [part for part, rows_left in remaining.items() if len(group) <= rows_left]
        if fitting:
            part = fitting[0]
            remaining[part] -= len(group)
        else:
            part = "train"
        parts[part] += group
    for part, rows in parts.items():
        if not rows:
            raise _empty_part(part, labels, has_free_rows=bool(free))
    return {part: np.sort(np.array(rows, dtype=np.int64)) for part, rows in parts.items()}


def _empty_part(part: str, labels: Labels, *, has_free_rows: bool) -> HeadToHeadError:
    if not has_free_rows:
        return HeadToHeadError(
            f"every pair has a part, and none is for {part}; add pairs for {part}"
        )
    largest = int(np.bincount(labels).max())
    return HeadToHeadError(
        f"the split leaves no pair for {part}: of {len(labels)} pairs the largest group has {largest}, and "
        "groups are not split; add pairs, lower data.valid and data.test, or set data.split: row"
    )


def shuffled(count: int, seed: int) -> Labels:
    """Return a random permutation of the rows 0 to ``count`` - 1."""
    return np.random.RandomState(seed).permutation(count).astype(np.int64)


def text_leak(train: NDArray[np.integer], test: NDArray[np.integer]) -> float:
    """Return the fraction of the tokens of a test text in a window that occurs anywhere in training.

    It is 0 if less than ``RECURRENCE`` of the windows of ``WINDOW`` tokens occur in training, which
    happens by chance. Windows are compared by polynomial hashes modulo 2^64: a hash is a difference
    of prefix sums, divided by a power of the base.
    """
    length = min(WINDOW, len(test))
    recurs = _is_among(_window_hashes(test, length), _window_hashes(train, length))
    if recurs.mean() < RECURRENCE:
        return 0.0
    (starts,) = np.nonzero(recurs)
    # Per token: the windows that begin there, minus those that ended before it.
    changes = np.zeros(len(test) + 1, dtype=np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + length, -1)
    is_leaked = np.cumsum(changes)[:-1] > 0
    return float(is_leaked.mean())


def _is_among(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return for each hash whether it is among the known ones; `numpy.isin` takes ten times as long."""
    if not len(known):
        return np.zeros(len(hashes), dtype=np.bool_)
    in_order = np.sort(known)
    nearest = np.searchsorted(in_order, hashes).clip(max=len(known) - 1)
    found: NDArray[np.bool_] = in_order[nearest] == hashes
    return found


def _window_hashes(ids: NDArray[np.integer], length: int) -> NDArray[np.uint64]:
    """Return the hash of every window of ``length`` ids."""
    terms = (ids + 1).astype(np.uint64) * _powers(HASH_BASE, len(ids))
    sums = np.cumsum(np.concatenate([[np.uint64(0)], terms]), dtype=np.uint64)
    count = max(0, len(ids) - length + 1)
    differences: NDArray[np.uint64] = sums[length:] - sums[:count]
    return differences * _powers(pow(HASH_BASE, -1, 2**64), count)


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """Return the powers 0 to ``count`` - 1 of a base, modulo 2^64."""
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    return np.cumprod(factors, dtype=np.uint64)


def leak(
    train: Iterable[str], test: Sequence[str], weights: Sequence[float] | None = None
) -> float:
    """Return the fraction of test sentences that are also in train, by default with equal weights."""
    if weights is None:
        weights = [1.0] * len(test)
    in_train = set(train)
    leaked = 0.0
    for sentence, weight in zip(test, weights, strict=True):
        if sentence in in_train:
            leaked += weight
    total = sum(weights)
    return float(leaked / total) if total else 0.0
