"""Dividing pairs into train, valid and test so that nothing learned is asked again.

Every shuffle uses ``numpy.random.RandomState``, whose streams are frozen: the same seed gives the
same split under every version of numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError

PARTS = ("train", "valid", "test")
Labels = NDArray[np.int64]


def components(*keys: Sequence[str]) -> Labels:
    """Number the connected components of rows that share a value in any of the key columns."""
    count = len(keys[0])
    parent = list(range(count))
    for column in keys:
        first: dict[str, int] = {}
        for row, value in enumerate(column):
            _join(parent, row, first.setdefault(value, row))
    roots = np.array([_root(parent, row) for row in range(count)], dtype=np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)


def divide(labels: Labels, named: Sequence[str | None], *, valid: float, test: float, seed: int) -> dict[str, Labels]:
    """Return the rows of each part, in ascending order.

    Rows that the dataset has named stay where it put them. The others are drawn by whole groups,
    in shuffled order; a group that is larger than what a part still needs is passed over. A part
    that the dataset fills itself is not drawn from.

    Args:
        labels: The group of each row.
        named: The part that the dataset chose for each row, or None.
        valid: Validation part: a fraction of the drawn rows below 1, or a number of rows.
        test: Test part, in the same way.
        seed: Seed of the shuffle.

    Raises:
        HeadToHeadError: If a part would be empty.
    """
    parts = {part: [row for row, name in enumerate(named) if name == part] for part in PARTS}
    free = np.array([row for row, name in enumerate(named) if name is None], dtype=np.int64)
    wanted = {
        part: _wanted(part, share, len(free)) for part, share in (("test", test), ("valid", valid)) if not parts[part]
    }
    for group in _shuffled_groups(labels, free, seed):
        part = next((name for name, left in wanted.items() if 0 < len(group) <= left), "train")
        parts[part] += group
        if part in wanted:
            wanted[part] -= len(group)
    _refuse_empty(parts, labels)
    return {part: np.sort(np.array(rows, dtype=np.int64)) for part, rows in parts.items()}


def shuffled(count: int, seed: int) -> Labels:
    """Return the rows 0 to count - 1 in an order that depends on the seed only."""
    return np.random.RandomState(seed).permutation(count).astype(np.int64)


def leak(train: Iterable[str], test: Sequence[str]) -> float:
    """Return the share of test sentences that are also in train."""
    seen = set(train)
    return sum(sentence in seen for sentence in test) / max(len(test), 1)


def _root(parent: list[int], row: int) -> int:
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


def _join(parent: list[int], row: int, other: int) -> None:
    one, two = _root(parent, row), _root(parent, other)
    parent[max(one, two)] = min(one, two)


def _wanted(part: str, share: float, rows: int) -> int:
    if share < 1:
        return max(1, round(share * rows))
    if share != int(share):
        raise HeadToHeadError(f"data.{part} is {share}; give a fraction below 1 or a whole number")
    return int(share)


def _shuffled_groups(labels: Labels, rows: Labels, seed: int) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(int(labels[row]), []).append(row)
    members = list(groups.values())
    return [members[index] for index in shuffled(len(members), seed)]


def _refuse_empty(parts: dict[str, list[int]], labels: Labels) -> None:
    for part in PARTS:
        if not parts[part]:
            largest = int(np.bincount(labels).max()) if len(labels) else 0
            raise HeadToHeadError(
                f"the split leaves no pair for {part}: of {len(labels)} pairs the largest group "
                f"holds {largest}, and groups stay whole; change data.valid and data.test, or use "
                "data.split: row"
            )
