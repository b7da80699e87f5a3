"""Pairwise covering arrays: few rows in which every two values of two factors meet."""

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

    Greedy and without chance: each row takes the pair that is still missing and then, factor by
    factor, the value that meets most of what is missing (D. Cohen et al., "The AETG System", IEEE
    Transactions on Software Engineering, 1997).

    Args:
        factors: Values by name.
        allowed: Tells whether a row, or the beginning of one, has a meaning.
    """
    names = list(factors)
    missing = {
        (a, i, b, j)
        for a, b in combinations(names, 2)
        for i, one in enumerate(factors[a])
        for j, other in enumerate(factors[b])
        if allowed({a: one, b: other})
    }
    rows: list[Row[Value]] = []
    while missing:
        a, i, b, j = min(missing, key=lambda pair: (names.index(pair[0]), names.index(pair[2]), pair[1], pair[3]))
        missing.discard((a, i, b, j))
        chosen = _completed({a: i, b: j}, factors, allowed, missing)
        if chosen is not None:
            missing -= _pairs(chosen, names)
            rows.append({name: factors[name][chosen[name]] for name in names})
    return rows


def every_value(rows: Sequence[Row[Value]]) -> list[Row[Value]]:
    """Return few of the rows, chosen greedily, in which every value of every factor still occurs.

    Args:
        rows: With hashable values.
    """
    missing = {choice for row in rows for choice in row.items()}
    chosen: list[Row[Value]] = []
    while missing:
        row = max(rows, key=lambda row: len(missing.intersection(row.items())))
        missing.difference_update(row.items())
        chosen.append(row)
    return chosen


def _completed(
    chosen: dict[str, int],
    factors: Mapping[str, Sequence[Value]],
    allowed: Callable[[Row[Value]], bool],
    missing: set[tuple[str, int, str, int]],
) -> dict[str, int] | None:
    """Give every factor a value, going back where none is allowed."""
    names = list(factors)
    open_names = [name for name in names if name not in chosen]
    if not open_names:
        return chosen
    name = open_names[0]
    gains = {index: len(_pairs({**chosen, name: index}, names) & missing) for index in range(len(factors[name]))}
    for index in sorted(gains, key=lambda one: (-gains[one], one)):
        longer = {**chosen, name: index}
        if allowed({one: factors[one][place] for one, place in longer.items()}):
            found = _completed(longer, factors, allowed, missing)
            if found is not None:
                return found
    return None


def _pairs(chosen: Mapping[str, int], names: Sequence[str]) -> set[tuple[str, int, str, int]]:
    known = [name for name in names if name in chosen]
    return {(a, chosen[a], b, chosen[b]) for a, b in combinations(known, 2)}
