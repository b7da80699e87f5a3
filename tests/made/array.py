"""The pairwise array over every variant: few rows in which every two compatible values of two factors occur together.

The factors are attention, positional, masking, mask value, and the role of the positional encoding.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from headtohead.plugins.families import COMPONENTS
from headtohead.plugins.registry import Registry
from headtohead.testing.checks.configurations import compatible_config, role_variants
from headtohead.testing.subject import MASK_VALUES

Row = dict[str, Any]

ROLE_CHOICES = (
    "as its name means",
    "every role",
    "the encoder only",
    "the decoder only",
    "the cross only",
)
"""The roles in which a row uses its positional encoding, named as by ``role_variants``."""


def factors(registry: Registry) -> dict[str, list[str]]:
    """Return the values of each factor of the array."""
    families = {family: sorted(registry.entries[family]) for family in COMPONENTS}
    return {**families, "mask_value": list(MASK_VALUES), "role": list(ROLE_CHOICES)}


def choices(row: Row) -> Row:
    """Return the arguments of ``tiny_config`` for a row."""
    names = {name: value for name, value in row.items() if name != "role"}
    if row["role"] != ROLE_CHOICES[0] and "positional" in row:
        names["positional"] = dict(role_variants("positional", row["positional"]))[row["role"]]
    return names


def compatibility() -> Callable[[Row], bool]:
    """Return a function that checks whether a row, or an incomplete row in some role, is a compatible configuration."""
    found: dict[str, bool] = {}

    def is_compatible(row: Row) -> bool:
        if "role" not in row:
            return any(is_compatible(row | {"role": role}) for role in ROLE_CHOICES)
        # No entry is incompatible with a mask value.
        names = {name: value for name, value in choices(row).items() if name != "mask_value"}
        key = str(sorted(names.items()))
        if key not in found:
            found[key] = compatible_config(names)[0] is not None
        return found[key]

    return is_compatible


def covering(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = lambda row: True,
    size: int = 2,
    first: Sequence[Row] = (),
) -> list[Row]:
    """Return rows in which every allowed combination of values of ``size`` factors occurs at least once.

    Greedy and deterministic: each row takes the first uncovered combination, then, factor by factor, the value that
    covers most uncovered ones (D. Cohen et al., "The AETG System", IEEE Transactions on Software Engineering, 1997).
    The rows begin with the rows ``first``.
    """
    items = [[(name, value) for value in values] for name, values in factors.items()]
    covered = {combination for row in first for combination in combinations(row.items(), size)}
    uncovered = dict.fromkeys(
        combination
        for group in combinations(items, size)
        for combination in product(*group)
        if combination not in covered and allowed(dict(combination))
    )
    rows = [*first]
    while uncovered:
        combination = next(iter(uncovered))
        del uncovered[combination]
        row = _completed(
            dict(combination),
            factors,
            allowed,
            lambda row: sum(each in uncovered for each in combinations(row.items(), size)),
        )
        if row is not None:
            rows.append(row)
            for each in combinations(row.items(), size):
                uncovered.pop(each, None)
    return rows


def _completed(
    row: Row,
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool],
    gain: Callable[[Row], int],
) -> Row | None:
    """Return the row with a value for every factor, by backtracking; None where no row is allowed."""
    name = next((name for name in factors if name not in row), None)
    if name is None:
        return row
    longer = [
        {key: ({name: value} | row)[key] for key in factors if key in row or key == name}
        for value in factors[name]
    ]
    longer.sort(key=gain, reverse=True)
    completed = (_completed(row, factors, allowed, gain) for row in longer if allowed(row))
    return next((row for row in completed if row is not None), None)
