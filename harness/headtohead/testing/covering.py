"""Pairwise covering arrays: few combinations in which every two values of two factors occur together."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import combinations, product
from typing import Any, TypeVar

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
        factors: Hashable values by factor name.
        allowed: Whether a row is valid; also called with rows that lack some factors.
    """
    items = [[(name, value) for value in values] for name, values in factors.items()]
    pairs = (pair for first, second in combinations(items, 2) for pair in product(first, second))
    uncovered = dict.fromkeys(pair for pair in pairs if allowed(dict(pair)))
    rows: list[Row[Value]] = []
    while uncovered:
        pair = next(iter(uncovered))
        del uncovered[pair]
        row = _completed(dict(pair), factors, allowed, uncovered)
        if row is not None:
            rows.append(row)
            for covered in combinations(row.items(), 2):
                uncovered.pop(covered, None)
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


def _completed(
    row: Row[Value],
    factors: Mapping[str, Sequence[Value]],
    allowed: Callable[[Row[Value]], bool],
    uncovered: Container[Any],
) -> Row[Value] | None:
    """Return the row with a value for every factor, by backtracking; None where no row is allowed."""
    name = next((name for name in factors if name not in row), None)
    if name is None:
        return row
    longer = [
        {key: ({name: value} | row)[key] for key in factors if key in row or key == name} for value in factors[name]
    ]
    longer.sort(key=lambda row: -sum(pair in uncovered for pair in combinations(row.items(), 2)))
    completed = (_completed(row, factors, allowed, uncovered) for row in longer if allowed(row))
    return next((row for row in completed if row is not None), None)
