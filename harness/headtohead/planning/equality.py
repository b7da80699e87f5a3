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
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from headtohead.config.labels import joined
from headtohead.model.quirks import key_sides
from headtohead.planning.compatibility import longest_sequences
from headtohead.planning.costs import PlannedVariant
from headtohead.planning.datasets import PreparedDataSets
from headtohead.planning.lengths import decoding_limit
from headtohead.plugins.registry import calling, construct, find_masking
from headtohead.schema.run_config import EntryConfig, RunConfig

MAX_LENGTH = 768
"""Maximum length in tokens at which masks are compared: the cost grows with its cube."""

_LENGTHS_PER_CHUNK = 32

EQUAL = "{entries} allow the same keys for every non-padding query at all lengths up to {longest} with right padding"


class Equality(NamedTuple):
    """The slug of the variant that another one is equal to, and why."""

    slug: str
    reason: str


class MaskEffect(NamedTuple):
    """A hash of the masks of non-padding queries at all lengths, and whether these queries attend to padding."""

    digest: bytes
    attends_to_padding: bool


def mark_equal_masks(
    variants: Sequence[PlannedVariant], baseline: str, datasets: PreparedDataSets
) -> tuple[PlannedVariant, ...]:
    """Mark each variant that equals an earlier one but for masks with the same effect (see `variants_equal_by_mask`).

    The returned record of such a variant has ``equal_to`` and ``equal_reason``. The baseline counts as the first
    variant. The variants keep their order, and the arguments are not changed.

    Raises:
        HeadToHeadError: If a masking scheme is not registered, the data cannot be read, or a masking scheme or a quirk
            is a plugin and fails.
    """
    longest = {"source": 1, "target": 1}  # masks are compared at all lengths up to these
    for variant in variants:
        for side, tokens in _longest(variant.config, datasets).items():
            longest[side] = max(longest[side], tokens)
    configs = {variant.slug: variant.config for variant in variants}
    identities = {variant.slug: variant.identity for variant in variants}
    equality_of = variants_equal_by_mask(configs, baseline, identities, longest)
    marked = []
    for variant in variants:
        equality = equality_of.get(variant.slug)
        if equality is None:
            marked.append(variant)
            continue
        update = {"equal_to": equality.slug, "equal_reason": equality.reason}
        marked.append(replace(variant, record=variant.record.model_copy(update=update)))
    return tuple(marked)


def _longest(config: RunConfig, datasets: PreparedDataSets) -> dict[str, int]:
    """Return the maximum sequence length of training and decoding in tokens, by side."""
    prepared = datasets.of(config)
    longest = longest_sequences(config, prepared.record["longest"])
    prompt = 0 if "encoder" in config.roles else longest["source"]
    decoded = prompt + decoding_limit(config, prepared.longest_target) + 1
    return {"source": longest["source"], "target": max(longest["target"], decoded)}


def variants_equal_by_mask(
    configs: Mapping[str, RunConfig],
    first: str,
    identities: Mapping[str, Mapping[str, Any]],
    longest: Mapping[str, int],
) -> dict[str, Equality]:
    """Return, by slug, the variants that are equal to an earlier variant; variants without an equal one are absent.

    Only variants that agree in everything but masking can be equal. The order is ``first``, then that of ``configs``.

    Args:
        configs: The configuration of each variant after matching, by slug.
        first: Slug of the variant that is considered first, usually the baseline; one of ``configs``.
        identities: The result of `run_identity` for each variant, by slug.
        longest: Maximum sequence length of training and decoding in tokens, by side, source and target.

    Raises:
        HeadToHeadError: If a masking scheme is not registered, or it is a plugin and fails.
    """
    masks = _Masks(longest)
    equality_of: dict[str, Equality] = {}
    # The slugs of variants that are not equal to an earlier one, by their identity without masking.
    distinct_by_rest: dict[str, list[str]] = {}
    others = [slug for slug in configs if slug != first]
    for slug in (first, *others):
        rest = dict(identities[slug]["config"])
        rest.pop("masking", None)
        key = json.dumps([rest, identities[slug]["data_hash"]], sort_keys=True)
        distinct = distinct_by_rest.setdefault(key, [])
        for earlier in distinct:
            reason = masks.equality(configs[slug], configs[earlier])
            if reason is not None:
                equality_of[slug] = Equality(earlier, reason)
                break
        else:
            distinct.append(slug)
    return equality_of


class _Masks:
    """Compares masking schemes by the effect of their masks, which is computed once per scheme and role."""

    def __init__(self, longest: Mapping[str, int]) -> None:
        self.longest = longest
        self.effect = cache(self._effect)

    def equality(self, config: RunConfig, earlier: RunConfig) -> str | None:
        """Return why two variants that differ at most in masking are equal, or None if they are not known to be.

        Variants with the same maskings are equal. Different maskings are not compared, and the result is None, if
        sequences are longer than ``MAX_LENGTH``, or the masking of a role varies by layer.

        Args:
            config: The configuration of a variant.
            earlier: That of an earlier variant, with the same roles.
        """
        entry_of = {role: config.entry("masking", role) for role in config.roles}
        earlier_entry_of = {role: earlier.entry("masking", role) for role in config.roles}
        differing = [role for role in config.roles if entry_of[role] != earlier_entry_of[role]]
        if not differing:
            return "the two configurations are the same"
        longest = max(self.longest.values())
        entries = [*entry_of.values(), *earlier_entry_of.values()]
        if longest > MAX_LENGTH or any(entry.next_layers for entry in entries):
            return None
        side_of_keys = key_sides(config)
        for role in differing:
            side = side_of_keys[role]
            effect = self.effect(role, side, entry_of[role].model_dump_json())
            earlier_effect = self.effect(role, side, earlier_entry_of[role].model_dump_json())
            if effect.digest != earlier_effect.digest:
                return None
            # The rows of padding queries may differ if no non-padding query reads them as keys.
            query_side = "source" if role == "encoder" else "target"
            readers = [reader for reader in config.roles if side_of_keys[reader] == query_side]
            if self._attend_to_padding(readers, query_side, entry_of):
                return None
            if self._attend_to_padding(readers, query_side, earlier_entry_of):
                return None
        parts = [
            f"masking.{role} '{entry_of[role].name}' and '{earlier_entry_of[role].name}'"
            for role in differing
        ]
        return EQUAL.format(entries=joined(parts), longest=longest)

    def _attend_to_padding(
        self, roles: Sequence[str], side: str, entry_of: Mapping[str, EntryConfig]
    ) -> bool:
        """Return whether non-padding queries of any of the roles attend to padding of the side of their keys."""
        effects = [self.effect(role, side, entry_of[role].model_dump_json()) for role in roles]
        return any(effect.attends_to_padding for effect in effects)

    def _effect(self, role: str, side: str, entry: str) -> MaskEffect:
        """Return the effect of a masking scheme: its masks at every length from 1 to the longest of its keys' side.

        A scheme whose ``mask`` returns None allows all keys. The cost grows with the cube of the length.

        Args:
            role: The role of the attention.
            side: The side of its keys, source or target.
            entry: The scheme with its options, as JSON.

        Raises:
            HeadToHeadError: If the scheme is not registered, or it is a plugin and fails.
        """
        import torch

        chosen = json.loads(entry)
        masking = find_masking(chosen["name"])
        scheme = construct(masking, masking.Options.model_validate(chosen["options"]))
        row = torch.arange(self.longest["source" if role == "encoder" else "target"])
        column = torch.arange(self.longest[side])
        # Queries of another side than the keys have a length of their own.
        has_own_lengths = role == "cross" and side == "source"
        digest = hashlib.sha256()
        attends_to_padding = False
        for start in range(1, len(column) + 1, _LENGTHS_PER_CHUNK):
            lengths = torch.arange(start, min(start + _LENGTHS_PER_CHUNK, len(column) + 1))
            shape = (len(lengths), len(row), len(column))  # length, query, key
            with calling(masking):
                mask = scheme.mask(role, row, column, lengths)
            if mask is None:
                mask = torch.ones(shape, dtype=torch.bool)
            query_lengths = torch.full_like(lengths, len(row)) if has_own_lengths else lengths
            is_query = row < query_lengths[:, None]
            is_padding = column >= lengths[:, None]
            allowed = mask.expand(shape) & is_query[:, :, None]
            digest.update(allowed.numpy().tobytes())
            attends_to_padding |= bool((allowed & is_padding[:, None, :]).any())
        return MaskEffect(digest.digest(), attends_to_padding)
