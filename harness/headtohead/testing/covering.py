"""Pairwise covering arrays: few combinations in which every two values of two factors occur together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

Value = TypeVar("Value")
Row = dict[str, Value]


def covering(
    factors: Mapping[str, Sequence[Value]], allowed: Callable[[Row[Value]], bool] = lambda row: True
) -> list[Row[Value]]:
    """Return rows in which every allowed pair of values of two factors occurs at least once.

    Greedy and deterministic: each row takes the first uncovered pair, then, factor by factor, the
    value that covers most uncovered pairs (D. Cohen et al., "The AETG System", IEEE Transactions
    on Software Engineering, 1997).

    Args:
        factors: Values by factor name.
        allowed: Whether a row is valid; also called with rows that lack some factors.
    """
    names = list(factors)
    uncovered = {
        (a, i, b, j)
        for a, b in combinations(names, 2)
        for i, first in enumerate(factors[a])
        for j, second in enumerate(factors[b])
        if allowed({a: first, b: second})
    }
    rows: list[Row[Value]] = []
    while uncovered:
        a, i, b, j = min(uncovered, key=lambda pair: (names.index(pair[0]), names.index(pair[2]), pair[1], pair[3]))
        uncovered.discard((a, i, b, j))
        indices = _complete({a: i, b: j}, factors, allowed, uncovered)
        if indices is not None:
            uncovered -= _pairs(indices, names)
            rows.append({name: factors[name][indices[name]] for name in names})
    return rows


def every_value(rows: Sequence[Row[Value]]) -> list[Row[Value]]:
    """Return few of the rows, chosen greedily, that together still contain every value of every factor.

    Args:
        rows: With hashable values.
    """
    missing = {item for row in rows for item in row.items()}
    selected: list[Row[Value]] = []
    while missing:
        row = max(rows, key=lambda row: len(missing.intersection(row.items())))
        missing.difference_update(row.items())
        selected.append(row)
    return selected


def _complete(
    indices: dict[str, int],
    factors: Mapping[str, Sequence[Value]],
    allowed: Callable[[Row[Value]], bool],
    uncovered: set[tuple[str, int, str, int]],
) -> dict[str, int] | None:
    """Return the index of a value for every factor, by backtracking; None where no row is allowed."""
    names = list(factors)
    open_names = [name for name in names if name not in indices]
    if not open_names:
        return indices
    name = open_names[0]
    gains = {index: len(_pairs({**indices, name: index}, names) & uncovered) for index in range(len(factors[name]))}
    for index in sorted(gains, key=lambda index: (-gains[index], index)):
        extended = {**indices, name: index}
        if allowed({factor: factors[factor][value] for factor, value in extended.items()}):
            completed = _complete(extended, factors, allowed, uncovered)
            if completed is not None:
                return completed
    return None


def _pairs(indices: Mapping[str, int], names: Sequence[str]) -> set[tuple[str, int, str, int]]:
    assigned = [name for name in names if name in indices]
    return {(a, indices[a], b, indices[b]) for a, b in combinations(assigned, 2)}
