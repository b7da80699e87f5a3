"""Masks have their declared properties, equal their definition, and are the same step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.testing.invariant import invariant, role_invariant
from headtohead.testing.subject import Subject, explicit_forward, full_mask
from headtohead.testing.verdict import Verdict, does_not_apply, violated, within, worst

PAIR = ("sentence", "query", "key")

MASK_TIME = 14
"""Tokens added to the sentences' length for the checked masks, so that they exceed default windows and prefixes."""

LONG_MASK, MAX_MASK = 600, 4096
"""Tokens of long sentences, with masks that are compared with their properties alone: without a study, and at most."""


@role_invariant("mask-properties")
def masks_have_their_declared_properties(subject: Subject, role: str) -> Verdict:
    """A mask hides what its properties declare, and every non-padding query has a visible key."""
    return worst(
        *(
            _as_declared(subject, role, *sizes)
            for sizes in (_sizes(subject, role), _long_sizes(subject))
        )
    )


def _as_declared(subject: Subject, role: str, queries: int, keys: int, lengths: Tensor) -> Verdict:
    masking = subject.masking(role)
    # Broadcasting can accept a transposed or too small mask.
    columns = keys + 1 if not subject.attention(role).self_attention and queries == keys else keys
    raw = masking.mask(role, torch.arange(queries), torch.arange(columns), lengths)
    if raw is not None and not (
        raw.dtype == torch.bool
        and raw.shape in ((1, queries, columns), (len(lengths), queries, columns))
    ):
        kind = str(raw.dtype).removeprefix("torch.")
        expected = f"booleans [{len(lengths)} or 1, {queries}, {columns}]"
        return Verdict("violated", None, f"expected {expected}, got {kind} {list(raw.shape)}")
    mask = full_mask(masking, role, queries, keys, lengths)
    nonpad = torch.arange(queries)[None, :] < (lengths[:, None] if queries == keys else queries)
    without_key = ~mask.any(-1) & nonpad
    if bool(without_key.any()):
        sentence, query = without_key.nonzero()[0].tolist()
        place = (
            f"in a sentence of {int(lengths[sentence])} tokens, query {query} has no visible key"
        )
        return violated(place, float(without_key.sum()))
    properties = masking.role_properties(role) or frozenset()
    query_positions, key_positions = (
        torch.arange(queries)[None, :, None],
        torch.arange(keys)[None, None, :],
    )
    hidden = torch.zeros_like(mask)
    if "hides-future" in properties:
        hidden = hidden | (key_positions > query_positions)
    if "hides-padding" in properties:
        hidden = hidden | (key_positions >= lengths[:, None, None])
    wrong = mask == hidden if "shows-the-rest" in properties else mask & hidden
    return _no_pair(wrong, mask, lengths, "keys visible or hidden against the declared properties")


@role_invariant("mask-definition")
def masks_equal_their_definition(subject: Subject, role: str) -> Verdict:
    """A mask equals `may_attend` for every pair of a query and a key."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if masking.may_attend(role, 0, 0, 1) is None:
        return does_not_apply("the masking scheme does not define may_attend")
    mask = full_mask(masking, role, queries, keys, lengths)
    defined = torch.tensor(
        [
            [
                [bool(masking.may_attend(role, query, key, length)) for key in range(keys)]
                for query in range(queries)
            ]
            for length in lengths.tolist()
        ]
    )
    return _no_pair(mask != defined, mask, lengths, "query-key pairs that differ from may_attend")


@role_invariant("mask-steps")
def masks_are_the_same_step_by_step(subject: Subject, role: str) -> Verdict:
    """The mask of a single query or sentence equals its part of the whole mask, as decoding requires."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    whole = full_mask(masking, role, queries, keys, lengths)
    wrong = torch.zeros_like(whole)
    for query in range(queries):
        # In cached decoding of a decoder, later keys do not exist yet.
        for end in {keys, query + 1} if queries == keys else {keys}:
            row = masking.mask(role, torch.tensor([query]), torch.arange(end), lengths)
            wrong[:, query, :end] |= (True if row is None else row[:, 0]) != whole[:, query, :end]
    for sentence, length in enumerate(lengths):
        wrong[sentence] |= (
            full_mask(masking, role, queries, keys, length.unsqueeze(0))[0] != whole[sentence]
        )
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
    sizes, masking = subject.config.model, subject.config.masking
    verdicts = []
    for role in subject.roles:
        mask = subject.mask(role)
        layers = sizes.encoder_layers if role == "encoder" else sizes.decoder_layers
        # A layer without a mask records none.
        masks = recorded[role] + [torch.ones_like(mask)] * (layers - len(recorded[role]))
        wrong = torch.stack([used != mask for used in masks]).double()
        quantity = "difference from the masking scheme"
        verdicts.append(within(wrong, quantity, ("layer", "member", *PAIR), 0.0).in_role(role))
    # A scheme for all roles must not hide source tokens by target position.
    crosses = "cross" in subject.roles and subject.model.attends_to_source
    if crosses and masking.cross.name == masking.decoder.name:
        mask = subject.mask("cross")
        if bool((mask != mask[:, :, -1:]).any()):
            verdicts.append(
                violated("some source tokens are visible to some target positions only").in_role(
                    "cross"
                )
            )
    return worst(*verdicts)


def _no_pair(wrong: Tensor, mask: Tensor, lengths: Tensor, quantity: str) -> Verdict:
    """Return a verdict on the number of wrong entries, with the first entry of the shortest sentence."""
    if not bool(wrong.any()):
        return Verdict("holds", 0.0, quantity)
    sentence, query, key = wrong.nonzero()[0].tolist()
    attends = "attends" if bool(mask[sentence, query, key]) else "does not attend"
    place = (
        f"in a sentence of {int(lengths[sentence])} tokens, query {query} {attends} to key {key}"
    )
    return Verdict("violated", float(wrong.sum()), quantity, counterexample=place)


def _sizes(subject: Subject, role: str) -> tuple[int, int, Tensor]:
    """Return the numbers of queries and keys, and lengths of the side that the keys come from."""
    queries, keys = (time + MASK_TIME for time in subject.times(role))
    if subject.attention(role).self_attention:
        queries = keys
    return queries, keys, torch.tensor(sorted({1, max(1, keys // 2), max(1, keys - 1), keys}))


def _long_sizes(subject: Subject) -> tuple[int, int, Tensor]:
    """Return the sizes of masks of sentences as long as those of the study."""
    time = min(sum(subject.longest), MAX_MASK) if subject.longest else LONG_MASK
    return time, time, torch.tensor(sorted({1, max(1, time // 2), max(1, time - 1), time}))
