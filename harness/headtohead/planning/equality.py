"""Find variants that are the same by construction because their masks have the same effect.

Two variants that differ only in masking compute the same numbers if, for every length,

- their masks agree in the rows of non-padding queries, and
- where they differ in the rows of padding queries, no output depends on those rows: non-padding
  queries never attend to a padding key, neither in that stack nor, for the encoder, in
  cross-attention.

With right padding, a decoder with ``causal`` and a decoder with ``padding-causal`` are such a pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from headtohead.config.labels import listed
from headtohead.planning.variants import Variant
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import roles_of

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 768
"""Maximum length in tokens at which masks are compared: the cost grows with its cube."""

_LENGTHS_PER_CHUNK = 32


@dataclass(frozen=True)
class Equal:
    """The slug of the variant that a variant is equal to, and the reason."""

    to: str
    reason: str


def equal_variants(
    variants: Sequence[Variant],
    first: str,
    identities: Mapping[str, Mapping[str, Any]],
    longest: Mapping[str, int],
    registry: Registry,
) -> dict[str, Equal]:
    """Return, by slug, the variants that are equal to an earlier variant.

    Args:
        variants: The variants, after matching.
        first: Slug of the variant that is considered first, usually the baseline.
        identities: Canonical identity of each variant, by slug.
        longest: Maximum sequence length of training and decoding in tokens, by side.
        registry: Provides the masking schemes.
    """
    masks = _Masks(registry, longest)
    equal: dict[str, Equal] = {}
    for group in _groups_by_other_settings(variants, first, identities):
        distinct: list[Variant] = []
        for variant in group:
            for other in distinct:
                roles = masks.irrelevant_differences(variant, other)
                if roles is not None:
                    equal[variant.slug] = Equal(other.slug, _reason(variant, other, roles, masks))
                    break
            else:
                distinct.append(variant)
    return equal


def _groups_by_other_settings(
    variants: Iterable[Variant], first: str, identities: Mapping[str, Mapping[str, Any]]
) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in sorted(variants, key=lambda variant: variant.slug != first):
        identity = identities[variant.slug]
        rest = {name: section for name, section in identity["config"].items() if name != "masking"}
        text = json.dumps([rest, identity["data_hash"]], sort_keys=True)
        groups.setdefault(text, []).append(variant)
    return [group for group in groups.values() if len(group) > 1]


class _Masks:
    """Compares the masks of masking schemes by role; comparisons are cached."""

    def __init__(self, registry: Registry, longest: Mapping[str, int]) -> None:
        self.registry, self.longest = registry, longest
        self.agree = cache(self._agree)
        self.attends_to_padding = cache(self._attends_to_padding)

    def irrelevant_differences(self, variant: Variant, other: Variant) -> list[str] | None:
        """Return the roles in which two variants differ without effect, or None if a difference has an effect."""
        own, others = variant.config.masking, other.config.masking
        differing = [role for role in roles_of(variant.config) if own.role(role) != others.role(role)]
        if differing and max(self.longest.values()) > LONGEST:
            return None
        sides = _sides(variant)
        for role in differing:
            if not self.agree(role, sides[role], _text(variant, role), _text(other, role)):
                return None
            for reader in _readers(role, sides):
                schemes = {_text(variant, reader), _text(other, reader)}
                if any(self.attends_to_padding(reader, sides[reader], scheme) for scheme in schemes):
                    return None
        return differing

    def _agree(self, role: str, side: str, scheme: str, other: str) -> bool:
        return all(
            bool(((left == right) | ~queries).all())
            for (left, queries, _), (right, _, _) in zip(
                self._masks(role, side, scheme), self._masks(role, side, other), strict=True
            )
        )

    def _attends_to_padding(self, role: str, side: str, scheme: str) -> bool:
        return any(bool((mask & queries & padding).any()) for mask, queries, padding in self._masks(role, side, scheme))

    def _masks(self, role: str, side: str, entry: str) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """Yield mask, non-padding queries and padding keys ``[length, query, key]`` per chunk of lengths."""
        import torch

        chosen = json.loads(entry)
        masking = self.registry.masking(chosen["name"])
        scheme = masking(masking.Options.model_validate(chosen["options"]))
        keys = self.longest[side]
        queries = self.longest["source" if role == "encoder" else "target"]
        row, column = torch.arange(queries), torch.arange(keys)
        for start in range(1, keys + 1, _LENGTHS_PER_CHUNK):
            lengths = torch.arange(start, min(start + _LENGTHS_PER_CHUNK, keys + 1))
            shape = (len(lengths), queries, keys)
            mask = scheme.mask(role, row, column, lengths)
            full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
            padding = (column >= lengths[:, None])[:, None, :].expand(shape)
            # Queries of another side than the keys have a length of their own.
            non_padding = (row < lengths[:, None])[:, :, None].expand(shape)
            two_sides = role == "cross" and side == "source"
            yield full, torch.ones_like(non_padding) if two_sides else non_padding, padding


def _sides(variant: Variant) -> dict[str, str]:
    """Return, by role, the side that provides the keys."""
    cross = "target" if variant.config.quirks.cross_attention_memory == "decoder" else "source"
    return {"encoder": "source", "decoder": "target", "cross": cross}


def _readers(role: str, sides: Mapping[str, str]) -> list[str]:
    """Return the roles with keys from rows that a change of ``role`` can affect."""
    side = "source" if role == "encoder" else "target"
    return [reader for reader, own in sides.items() if own == side]


def _text(variant: Variant, role: str) -> str:
    return variant.config.masking.role(role).model_dump_json()


def _reason(variant: Variant, other: Variant, roles: Sequence[str], masks: _Masks) -> str:
    if not roles:
        return "the two configurations are the same"
    parts = [
        f"masking.{role} '{variant.config.masking.role(role).name}' and '{other.config.masking.role(role).name}'"
        for role in roles
    ]
    longest = max(masks.longest.values())
    return (
        f"{listed(parts)} allow the same keys for every non-padding query at all lengths up to "
        f"{longest} with right padding"
    )
