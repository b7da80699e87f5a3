"""Find variants that are the same by construction because their masks have the same effect.

Two variants that differ only in masking compute the same numbers if, for every length,

- their masks agree in the rows of non-padding queries, and
- where they differ in the rows of padding queries, no output depends on those rows: non-padding
  queries never attend to a padding key, neither in that stack nor, for the encoder, in
  cross-attention.

With right padding, a decoder with ``causal`` and a decoder with ``padding-causal`` are such a pair.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from headtohead.config.labels import listed
from headtohead.model.quirks import key_sides
from headtohead.planning.variants import Variant
from headtohead.plugins.registry import Registry

MAX_LENGTH = 768
"""Maximum length in tokens at which masks are compared: the cost grows with its cube."""

_LENGTHS_PER_CHUNK = 32


def equal_variants(
    variants: Sequence[Variant],
    first: str,
    identities: Mapping[str, Mapping[str, Any]],
    longest: Mapping[str, int],
    registry: Registry,
) -> dict[str, tuple[str, str]]:
    """Return, by slug, the variants that are equal to an earlier variant: its slug, and the reason.

    Args:
        variants: The variants, after matching.
        first: Slug of the variant that is considered first, usually the baseline.
        identities: Canonical identity of each variant, by slug.
        longest: Maximum sequence length of training and decoding in tokens, by side.
        registry: Provides the masking schemes.
    """
    masks, equal = _Masks(registry, longest), {}
    groups: dict[str, list[Variant]] = {}
    for variant in sorted(variants, key=lambda variant: variant.slug != first):
        identity = identities[variant.slug]
        rest = {name: section for name, section in identity["config"].items() if name != "masking"}
        distinct = groups.setdefault(json.dumps([rest, identity["data_hash"]], sort_keys=True), [])
        reasons = ((other.slug, masks.equality(variant, other)) for other in distinct)
        found = next(((slug, reason) for slug, reason in reasons if reason), None)
        if found:
            equal[variant.slug] = found
        else:
            distinct.append(variant)
    return equal


class _Masks:
    """Compares masking schemes by the effect of their masks, which is computed once per scheme and role."""

    def __init__(self, registry: Registry, longest: Mapping[str, int]) -> None:
        self.registry, self.longest = registry, longest
        self.effect = cache(self._effect)

    def equality(self, variant: Variant, other: Variant) -> str | None:
        """Return why two variants that differ at most in masking are equal, or None if a difference has an effect."""
        roles = variant.config.roles
        sides = [
            {role: side.config.masking.role(role) for role in roles} for side in (variant, other)
        ]
        differing = [role for role in roles if sides[0][role] != sides[1][role]]
        if not differing:
            return "the two configurations are the same"
        longest = max(self.longest.values())
        if longest > MAX_LENGTH or any(
            entry.next_layers for side in sides for entry in side.values()
        ):
            return None
        keys = key_sides(variant.config)
        for role in differing:
            masks = {
                self.effect(role, keys[role], side[role].model_dump_json())[0] for side in sides
            }
            rows = "source" if role == "encoder" else "target"
            readers = [reader for reader in roles if keys[reader] == rows]
            if len(masks) > 1 or any(
                self.effect(reader, rows, side[reader].model_dump_json())[1]
                for reader in readers
                for side in sides
            ):
                return None
        parts = [
            f"masking.{role} '{sides[0][role].name}' and '{sides[1][role].name}'"
            for role in differing
        ]
        return (
            f"{listed(parts)} allow the same keys for every non-padding query at all lengths up to {longest} with "
            "right padding"
        )

    def _effect(self, role: str, side: str, entry: str) -> tuple[bytes, bool]:
        """Return a hash of the masks of non-padding queries at all lengths, and whether these attend to padding."""
        import torch

        chosen = json.loads(entry)
        masking = self.registry.masking(chosen["name"])
        scheme = masking(masking.Options.model_validate(chosen["options"]))
        row = torch.arange(self.longest["source" if role == "encoder" else "target"])
        column = torch.arange(self.longest[side])
        digest, attends_to_padding = hashlib.sha256(), False
        for start in range(1, len(column) + 1, _LENGTHS_PER_CHUNK):
            lengths = torch.arange(start, min(start + _LENGTHS_PER_CHUNK, len(column) + 1))
            mask = scheme.mask(role, row, column, lengths)
            shape = (len(lengths), len(row), len(column))  # length, query, key
            full = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
            # Queries of another side than the keys have a length of their own.
            ends = (
                lengths
                if role != "cross" or side == "target"
                else torch.full_like(lengths, len(row))
            )
            full = full & (row < ends[:, None])[:, :, None]
            digest.update(full.numpy().tobytes())
            attends_to_padding |= bool((full & (column >= lengths[:, None])[:, None, :]).any())
        return digest.digest(), attends_to_padding
