"""Masks have their declared properties, equal their definition, and are the same step by step."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from headtohead.testing.invariant import invariant, role_invariant
from headtohead.testing.subject import Subject, explicit_forward, full_mask
from headtohead.testing.verdict import Verdict, does_not_apply, violated, within, worst

PAIR = ("sentence", "query", "key")

MASK_TIME = 14
"""Tokens added to the sentences' length for the checked masks, so that they exceed default windows and prefixes."""

LONG_MASK = 600
"""Tokens of long sentences without a study; their masks are compared with their properties alone."""
MAX_MASK = 4096
"""Maximum number of tokens of long sentences."""


@role_invariant("mask-properties", scope="entry")
def masks_have_their_declared_properties(subject: Subject, role: str) -> Verdict:
    """A mask hides what its properties declare, and every non-padding query has a visible key."""
    short = _as_declared(subject, role, *_sizes(subject, role))
    long = _as_declared(subject, role, *_long_sizes(subject))
    return worst(short, long)


def _as_declared(subject: Subject, role: str, queries: int, keys: int, lengths: Tensor) -> Verdict:
    """Judge whether the mask of a role has the right shape, a key for every query and its declared properties.

    Args:
        subject: The variant.
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        queries: Number of queries.
        keys: Number of keys. With as many keys as queries, queries beyond the length of a sentence are padding.
        lengths: Tokens of each sentence on the side of the keys, ascending.
    """
    masking = subject.masking(role)
    # `full_mask` expands axes of size 1, so a wrong shape is found in the unexpanded mask only. A transposed mask is
    # found only if the numbers of queries and keys differ.
    tested_keys = keys
    if queries == keys and not subject.attention(role).is_self_attention:
        tested_keys = keys + 1
    unexpanded = masking.mask(role, torch.arange(queries), torch.arange(tested_keys), lengths)
    shapes = ((1, queries, tested_keys), (len(lengths), queries, tested_keys))
    if unexpanded is not None and (
        unexpanded.dtype != torch.bool or unexpanded.shape not in shapes
    ):
        dtype = str(unexpanded.dtype).removeprefix("torch.")
        expected = f"booleans [{len(lengths)} or 1, {queries}, {tested_keys}]"
        reason = f"expected {expected}, got {dtype} {list(unexpanded.shape)}"
        return Verdict("violated", None, reason)

    mask = full_mask(masking, role, queries, keys, lengths)  # [sentence, query, key]
    query_positions = torch.arange(queries)
    key_positions = torch.arange(keys)
    without_key = ~mask.any(dim=-1)  # [sentence, query]
    if queries == keys:
        is_padding = query_positions >= lengths[:, None]
        without_key = without_key & ~is_padding
    if bool(without_key.any()):
        sentence, query = without_key.nonzero()[0].tolist()
        length = int(lengths[sentence])
        reason = f"in a sentence of {length} tokens, query {query} has no visible key"
        return violated(reason, float(without_key.sum()))

    properties = masking.role_properties(role) or frozenset()
    must_hide = torch.zeros_like(mask)
    if "hides-future" in properties:
        must_hide = must_hide | (key_positions > query_positions[:, None])
    if "hides-padding" in properties:
        must_hide = must_hide | (key_positions >= lengths[:, None, None])
    wrong = mask & must_hide
    if "shows-the-rest" in properties:
        wrong = mask != ~must_hide
    return _no_pair(wrong, mask, lengths, "keys visible or hidden against the declared properties")


@role_invariant("mask-definition", scope="entry")
def masks_equal_their_definition(subject: Subject, role: str) -> Verdict:
    """A mask equals `may_attend` for every pair of a query and a key."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if masking.may_attend(role, 0, 0, 1) is None:
        return does_not_apply("the masking scheme does not define may_attend")
    mask = full_mask(masking, role, queries, keys, lengths)
    defined = torch.zeros_like(mask)
    for sentence, length in enumerate(lengths.tolist()):
        for query, key in product(range(queries), range(keys)):
            defined[sentence, query, key] = bool(masking.may_attend(role, query, key, length))
    return _no_pair(mask != defined, mask, lengths, "query-key pairs that differ from may_attend")


@role_invariant("mask-steps", scope="entry")
def masks_are_the_same_step_by_step(subject: Subject, role: str) -> Verdict:
    """The mask of a single query or sentence equals its part of the whole mask, as decoding requires."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    whole = full_mask(masking, role, queries, keys, lengths)
    wrong = torch.zeros_like(whole)
    for query in range(queries):
        ends = {keys}
        if queries == keys:
            ends.add(query + 1)  # in cached decoding of a decoder, later keys do not exist yet
        for end in ends:
            row = masking.mask(role, torch.tensor([query]), torch.arange(end), lengths)
            expected = whole[:, query, :end]
            wrong[:, query, :end] |= ~expected if row is None else row[:, 0] != expected
    for sentence, length in enumerate(lengths):
        alone = full_mask(masking, role, queries, keys, length.unsqueeze(0))
        wrong[sentence] |= alone[0] != whole[sentence]
    quantity = (
        "entries that differ between the mask of a single query or sentence and the whole mask"
    )
    return _no_pair(wrong, whole, lengths, quantity)


@invariant("mask-used")
def every_layer_uses_the_mask_of_its_role(subject: Subject) -> Verdict:
    """In a pass of the model, every layer uses the mask of its role."""
    recorded: dict[str, list[Tensor]] = {role: [] for role in subject.roles}

    def observe(role: str, layer: int | None, name: str, value: Tensor) -> None:
        if name == "mask":
            recorded[role].append(value.any(2))

    with torch.no_grad():
        explicit_forward(subject.model, subject.sentences, observe)
    sizes = subject.config.model
    verdicts = []
    for role in subject.roles:
        mask = subject.mask(role)
        layers = sizes.encoder_layers if role == "encoder" else sizes.decoder_layers
        # A layer without a mask records none.
        without_mask = layers - len(recorded[role])
        masks = recorded[role] + [torch.ones_like(mask)] * without_mask
        wrong = torch.stack([used != mask for used in masks]).double()
        quantity = "difference from the masking scheme"
        verdicts.append(within(wrong, quantity, ("layer", "member", *PAIR), 0.0).in_role(role))
    # A scheme for all roles must not hide source tokens by target position.
    masking = subject.config.masking
    attends_to_source = "cross" in subject.roles and subject.model.attends_to_source
    if attends_to_source and masking.cross.name == masking.decoder.name:
        mask = subject.mask("cross")
        if bool((mask != mask[:, :, -1:]).any()):
            verdict = violated("some source tokens are visible to some target positions only")
            verdicts.append(verdict.in_role("cross"))
    return worst(*verdicts)


def _no_pair(wrong: Tensor, mask: Tensor, lengths: Tensor, quantity: str) -> Verdict:
    """Return a verdict on the number of wrong entries, with the first entry of the shortest sentence."""
    if not bool(wrong.any()):
        return Verdict("holds", 0.0, quantity)
    sentence, query, key = wrong.nonzero()[0].tolist()
    attends = "attends" if bool(mask[sentence, query, key]) else "does not attend"
    length = int(lengths[sentence])
    place = f"in a sentence of {length} tokens, query {query} {attends} to key {key}"
    return Verdict("violated", float(wrong.sum()), quantity, counterexample=place)


def _sizes(subject: Subject, role: str) -> tuple[int, int, Tensor]:
    """Return the numbers of queries and keys, and lengths of the side that the keys come from."""
    queries, keys = subject.times(role)
    if subject.attention(role).is_self_attention:
        queries = keys
    keys += MASK_TIME
    return queries + MASK_TIME, keys, _lengths_up_to(keys)


def _long_sizes(subject: Subject) -> tuple[int, int, Tensor]:
    """Return the sizes of masks of sentences as long as those of the study."""
    time = LONG_MASK
    if subject.longest is not None:
        time = min(sum(subject.longest), MAX_MASK)
    return time, time, _lengths_up_to(time)


def _lengths_up_to(time: int) -> Tensor:
    """Return some lengths of sentences: 1, half of ``time``, and the two largest."""
    return torch.tensor(sorted({1, max(1, time // 2), max(1, time - 1), time}))
