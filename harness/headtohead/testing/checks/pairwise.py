"""The pairwise array in which ``h2h check --all`` and the tests evaluate every invariant.

Every two compatible values of attention, positional, masking, mask value and the role of the positional encoding
occur together in a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headtohead.plugins.registry import Registry
from headtohead.testing.checks.configurations import compatible_config, role_variants
from headtohead.testing.covering import covering
from headtohead.testing.subject import MASK_VALUES

ROLE_CHOICES = ("as its name means", "every role", "the encoder only", "the decoder only", "the cross only")
"""The roles in which a row uses its positional encoding, named as by ``role_variants``."""

Row = dict[str, str]


def factors(registry: Registry) -> dict[str, list[str]]:
    """Return the values of each factor of the array."""
    families = {family: sorted(registry.entries[family]) for family in ("positional", "attention", "masking")}
    return {**families, "mask_value": list(MASK_VALUES), "role": list(ROLE_CHOICES)}


def choices(row: Row, registry: Registry) -> dict[str, Any]:
    """Return the arguments of ``tiny_config`` for a row."""
    names: dict[str, Any] = {name: value for name, value in row.items() if name != "role"}
    if row["role"] != ROLE_CHOICES[0] and "positional" in row:
        names["positional"] = dict(role_variants("positional", row["positional"], registry))[row["role"]]
    return names


def compatibility(registry: Registry) -> Callable[[Row], bool]:
    """Return a function that checks whether a row, or an incomplete row in some role, is a compatible configuration."""
    found: dict[str, bool] = {}

    def is_compatible(row: Row) -> bool:
        if "role" not in row:
            return any(is_compatible(row | {"role": role}) for role in ROLE_CHOICES)
        # No entry is incompatible with a mask value.
        names = {name: value for name, value in choices(row, registry).items() if name != "mask_value"}
        key = str(sorted(names.items()))
        if key not in found:
            found[key] = compatible_config(names, registry)[0] is not None
        return found[key]

    return is_compatible


def pairwise(registry: Registry) -> list[Row]:
    """Return the rows of the array."""
    return covering(factors(registry), compatibility(registry))


def incompatible_pairs(registry: Registry) -> list[tuple[str, str, str]]:
    """Return attention, positional and reason of every pair that is incompatible, also in the decoder alone."""
    found = []
    for attention in sorted(registry.entries["attention"]):
        for positional in sorted(registry.entries["positional"]):
            decoder_only = dict(role_variants("positional", positional, registry)).get("the decoder only", positional)
            reasons = [
                compatible_config({"attention": attention, "positional": value}, registry)[1]
                for value in (positional, decoder_only)
            ]
            if all(reasons):
                found.append((attention, positional, reasons[0]))
    return found
