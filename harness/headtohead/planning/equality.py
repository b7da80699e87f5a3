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
    """Compares the masks of masking schemes by role; comparisons are cached."""

    def __init__(self, registry: Registry, longest: Mapping[str, int]) -> None:
        self.registry, self.longest = registry, longest
        self.agree = cache(self._agree)
        self.attends_to_padding = cache(self._attends_to_padding)

    def equality(self, variant: Variant, other: Variant) -> str | None:
        """Return why two variants that differ at most in masking are equal, or None if a difference has an effect."""
        roles = roles_of(variant.config)
        masking, others = ({role: side.config.masking.role(role) for role in roles} for side in (variant, other))
        differing = [role for role in roles if masking[role] != others[role]]
        if not differing:
            return "the two configurations are the same"
        longest = max(self.longest.values())
        if longest > LONGEST:
            return None
        cross = "target" if variant.config.quirks.cross_attention_memory == "decoder" else "source"
        keys = {"encoder": "source", "decoder": "target", "cross": cross}
        for role in differing:
            if not self.agree(role, keys[role], masking[role].model_dump_json(), others[role].model_dump_json()):
                return None
            rows = "source" if role == "encoder" else "target"
            for reader in (reader for reader in roles if keys[reader] == rows):
                schemes = {masking[reader].model_dump_json(), others[reader].model_dump_json()}
                if any(self.attends_to_padding(reader, rows, scheme) for scheme in schemes):
                    return None
        parts = [f"masking.{role} '{masking[role].name}' and '{others[role].name}'" for role in differing]
        return (
            f"{listed(parts)} allow the same keys for every non-padding query at all lengths up to {longest} with "
            "right padding"
        )

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
