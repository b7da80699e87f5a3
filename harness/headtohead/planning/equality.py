"""Variants that cannot differ: their masks agree wherever anything is read.

Two variants that differ in maskings alone compute the same numbers if, for every length,

- their masks agree on the rows of live queries, and
- where they differ on the rows of padding, nobody reads those rows: live queries never keep a
  padded key, neither in that stack nor, for the encoder, in cross-attention.

Under right padding a decoder with ``causal`` and one with ``padding-causal`` are such a pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from headtohead.planning.design import Variant
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import EntryConfig

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 768
"""Masks of longer data are not compared: the work grows with the cube of the length."""

_AT_ONCE = 32


@dataclass(frozen=True)
class Equal:
    """A variant that equals another, with the reason in words."""

    to: str
    reason: str


def equal_variants(
    variants: Sequence[Variant],
    first: str,
    identities: Mapping[str, Mapping[str, Any]],
    longest: Mapping[str, int],
    registry: Registry,
) -> dict[str, Equal]:
    """Return, by slug, the variants that equal an earlier one.

    Args:
        variants: As they would be trained.
        first: Slug of the variant that others are preferably equal to.
        identities: Canonical identity of each variant, by slug.
        longest: Tokens of the longest sequence by side that training or decoding can meet.
        registry: Where maskings are looked up.
    """
    masks = _Masks(registry, longest)
    found: dict[str, Equal] = {}
    for group in _alike_but_for_masks(variants, first, identities):
        kept: list[Variant] = []
        for variant in group:
            for other in kept:
                roles = masks.same_outcome(variant, other)
                if roles is not None:
                    found[variant.slug] = Equal(other.slug, _reason(variant, other, roles, masks))
                    break
            else:
                kept.append(variant)
    return found


def _alike_but_for_masks(
    variants: Iterable[Variant], first: str, identities: Mapping[str, Mapping[str, Any]]
) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in sorted(variants, key=lambda one: one.slug != first):
        identity = identities[variant.slug]
        rest = {name: one for name, one in identity["config"].items() if name != "masking"}
        text = json.dumps([rest, identity["data_hash"]], sort_keys=True)
        groups.setdefault(text, []).append(variant)
    return [group for group in groups.values() if len(group) > 1]


class _Masks:
    """Masks of entries by role, each comparison made once."""

    def __init__(self, registry: Registry, longest: Mapping[str, int]) -> None:
        self.registry, self.longest = registry, longest
        self.agree = cache(self._agree)
        self.reads_padding = cache(self._reads_padding)

    def same_outcome(self, one: Variant, other: Variant) -> list[str] | None:
        """Return the roles in which two variants differ without effect, or None if one has one."""
        differing = [role for role in ROLES if one.config.masking.role(role) != other.config.masking.role(role)]
        if differing and max(self.longest.values()) > LONGEST:
            return None
        sides = _sides(one)
        for role in differing:
            if not self.agree(role, sides[role], _text(one, role), _text(other, role)):
                return None
            for reader in _readers(role, sides):
                texts = {_text(each, reader) for each in (one, other)}
                if any(self.reads_padding(reader, sides[reader], text) for text in texts):
                    return None
        return differing

    def _agree(self, role: str, side: str, one: str, other: str) -> bool:
        return all(
            bool(((left == right) | ~live).all())
            for (left, live, _), (right, _, _) in zip(
                self._masks(role, side, one), self._masks(role, side, other), strict=True
            )
        )

    def _reads_padding(self, role: str, side: str, entry: str) -> bool:
        return any(bool((mask & live & padded).any()) for mask, live, padded in self._masks(role, side, entry))

    def _masks(self, role: str, side: str, entry: str) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """Yield keep, live queries and padded keys ``[length, query, key]``, lengths in pieces."""
        import torch

        chosen = EntryConfig.model_validate_json(entry)
        masking = self.registry.masking(chosen.name)
        scheme = masking(masking.Options.model_validate(chosen.options))
        keys = self.longest[side]
        queries = self.longest["source" if role == "encoder" else "target"]
        row, column = torch.arange(queries), torch.arange(keys)
        for start in range(1, keys + 1, _AT_ONCE):
            lengths = torch.arange(start, min(start + _AT_ONCE, keys + 1))
            shape = (len(lengths), queries, keys)
            mask = scheme.mask(role, row, column, lengths)
            full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
            padded = (column >= lengths[:, None])[:, None, :].expand(shape)
            # where the queries are of another side than the keys, they have a length of their own
            alive = (row < lengths[:, None])[:, :, None].expand(shape)
            of_two_sides = role == "cross" and side == "source"
            yield full, torch.ones_like(alive) if of_two_sides else alive, padded


def _sides(variant: Variant) -> dict[str, str]:
    """Return whose tokens are the keys of each role."""
    cross = "target" if variant.config.quirks.cross_attention_memory == "decoder" else "source"
    return {"encoder": "source", "decoder": "target", "cross": cross}


def _readers(role: str, sides: Mapping[str, str]) -> list[str]:
    """Return the roles whose keys may come from rows that a change of ``role`` touches."""
    side = "source" if role == "encoder" else "target"
    return [reader for reader in ROLES if sides[reader] == side]


def _text(variant: Variant, role: str) -> str:
    return variant.config.masking.role(role).model_dump_json()


def _reason(one: Variant, other: Variant, roles: Sequence[str], masks: _Masks) -> str:
    if not roles:
        return "the two configurations are the same"
    parts = [
        f"masking.{role} '{one.config.masking.role(role).name}' and '{other.config.masking.role(role).name}'"
        for role in roles
    ]
    longest = max(masks.longest.values())
    return (
        f"{' and '.join(parts)} keep the same keys for every live query at all lengths up to "
        f"{longest} when padding stands on the right"
    )
