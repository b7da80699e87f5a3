"""Masks have their declared properties, equal their definition, and are the same step by step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, largest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, explicit_forward, full_mask
from headtohead.testing.verdict import Verdict, does_not_apply, within, worst

PAIR = ("sentence", "query", "key")

MASK_TIME = 14
"""Tokens added to the sentences' length for the checked masks, so that they exceed default windows and prefixes."""


@invariant("mask-properties")
def masks_have_their_declared_properties(subject: Subject) -> Verdict:
    """A mask hides what its properties declare, and every non-padding query has a visible key."""
    return worst(*(check(subject, role) for check in (_shape, _properties) for role in subject.roles))


@invariant("mask-definition")
def masks_equal_their_definition(subject: Subject) -> Verdict:
    """A mask equals `may_attend` for every pair of a query and a key."""
    return worst(*(_definition(subject, role) for role in subject.roles))


@invariant("mask-used")
def every_layer_uses_the_mask_of_its_role(subject: Subject) -> Verdict:
    """In a pass of the model, every layer uses the mask of its role."""
    recorded: dict[str, list[Tensor]] = {role: [] for role in subject.roles}

    def observe(role: str, layer: int | None, name: str, value: Tensor) -> None:
        if name == "mask":
            recorded[role].append(value.any(2))

    with torch.no_grad():
        explicit_forward(subject.model, subject.sentences, observe)
    return worst(*(_used(subject, role, recorded[role]) for role in subject.roles), *_cross_mask(subject))


@invariant("mask-steps")
def masks_are_the_same_step_by_step(subject: Subject) -> Verdict:
    """The mask of a single query or sentence equals its part of the whole mask, as decoding requires."""
    return worst(*(_steps(subject, role) for role in subject.roles))


def _used(subject: Subject, role: str, recorded: list[Tensor]) -> Verdict:
    mask = subject.mask(role)
    sizes = subject.config.model
    layers = sizes.encoder_layers if role == "encoder" else sizes.decoder_layers
    # A layer without a mask records none.
    masks = recorded + [torch.ones_like(mask)] * (layers - len(recorded))
    wrong = torch.stack([used != mask for used in masks]).double()
    first = largest(
        wrong,
        ("layer", "member", *PAIR),
        lambda at: (
            f"{role}: layer {at['layer']} differs from the masking scheme at query {at['query']} and key "
            f"{at['key']} of sentence {at['sentence']}:"
        ),
    )
    return _count(wrong, first, f"{role}: query-key pairs with another mask")


def _cross_mask(subject: Subject) -> Iterator[Verdict]:
    """Check that a scheme for all roles does not hide source tokens by target position."""
    masking = subject.config.masking
    if masking.cross.name != masking.decoder.name or not subject.model.attends_to_source:
        return
    mask = subject.mask("cross")
    wrong = (mask != mask[:, :, -1:]).double()
    first = largest(
        wrong,
        ("member", *PAIR),
        lambda at: (
            f"cross: key {at['key']} of sentence {at['sentence']} is hidden either from query "
            f"{at['query']} or from the last query:"
        ),
    )
    yield _count(wrong, first, "cross: source tokens that only some target positions attend to")


def _shape(subject: Subject, role: str) -> Verdict:
    """Check type and shape, since broadcasting can accept a transposed or too small mask."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if not subject.attention(role).self_attention and queries == keys:
        keys += 1
    mask = masking.mask(role, torch.arange(queries), torch.arange(keys), lengths)
    if mask is None:
        return Verdict("holds", 0.0, f"{role}: no mask")
    fits = mask.dim() == 3 and mask.shape[1:] == (queries, keys) and mask.shape[0] in (1, len(lengths))
    if mask.dtype != torch.bool or not fits:
        return Verdict(
            "violated",
            None,
            f"{role}: expected booleans [{len(lengths)} or 1, {queries}, {keys}], got "
            f"{str(mask.dtype).removeprefix('torch.')} {list(mask.shape)}",
        )
    return Verdict("holds", 0.0, f"{role}: booleans [batch or 1, query, key]")


def _properties(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    mask = full_mask(masking, role, queries, keys, lengths)
    nonpad = torch.arange(queries)[None, :] < (lengths[:, None] if queries == keys else queries)
    without_key = (~mask.any(-1) & nonpad).double()
    if bool(without_key.any()):
        first = largest(without_key, PAIR[:2], lambda at: _query(at, lengths, role) + " has no visible key:")
        return _count(without_key, first, f"{role}: non-padding queries without a visible key")
    properties = masking.role_properties(role) or frozenset()
    hidden = _hidden(properties, lengths, queries, keys)
    wrong = mask == hidden if "shows-the-rest" in properties else mask & hidden
    return _wrong_pairs(wrong, mask, lengths, role, "keys visible or hidden against the declared properties")


def _definition(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if masking.may_attend(role, 0, 0, 1) is None:
        return does_not_apply(f"{role}: the masking scheme does not define may_attend")
    mask = full_mask(masking, role, queries, keys, lengths)
    defined = torch.tensor(
        [
            [[bool(masking.may_attend(role, query, key, length)) for key in range(keys)] for query in range(queries)]
            for length in lengths.tolist()
        ]
    )
    return _wrong_pairs(mask != defined, mask, lengths, role, "query-key pairs that differ from may_attend")


def _steps(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    whole = full_mask(masking, role, queries, keys, lengths)
    stepped = whole.clone()
    for query in range(queries):
        row = masking.mask(role, torch.tensor([query]), torch.arange(keys), lengths)
        stepped[:, query] = True if row is None else row[:, 0]
        if queries == keys:  # in cached decoding, later keys do not exist yet
            cached = masking.mask(role, torch.tensor([query]), torch.arange(query + 1), lengths)
            early = torch.ones(1, dtype=torch.bool) if cached is None else cached[:, 0]
            agree = stepped[:, query, : query + 1] == early
            stepped[:, query, : query + 1] = torch.where(
                agree, stepped[:, query, : query + 1], ~whole[:, query, : query + 1]
            )
    for sentence, length in enumerate(lengths):
        alone = full_mask(masking, role, queries, keys, length.unsqueeze(0))[0]
        stepped[sentence] = torch.where(alone == whole[sentence], stepped[sentence], ~whole[sentence])
    quantity = "entries that differ between the mask of a single query or sentence and the whole mask"
    return _wrong_pairs(whole != stepped, whole, lengths, role, quantity)


def _wrong_pairs(wrong: Tensor, mask: Tensor, lengths: Tensor, role: str, quantity: str) -> Verdict:
    """Return a verdict on the number of wrong entries, with the first entry of the shortest sentence."""

    def describe(at: dict[str, int]) -> str:
        visible = bool(mask[at["sentence"], at["query"], at["key"]])
        return f"{_query(at, lengths, role)} {'attends' if visible else 'does not attend'} to key {at['key']}:"

    return _count(wrong.double(), largest(wrong.double(), PAIR, describe), f"{role}: {quantity}")


def _count(wrong: Tensor, first: Extremum, quantity: str) -> Verdict:
    """Return a verdict on the sum of ``wrong``; the counterexample is the description before its colon."""
    return within(Extremum(float(wrong.sum()), first.description.rpartition(":")[0]), quantity, 0.0)


def _query(at: dict[str, int], lengths: Tensor, role: str) -> str:
    return f"{role}: in a sentence of {int(lengths[at['sentence']])} tokens, query {at['query']}"


def _hidden(properties: frozenset[str], lengths: Tensor, queries: int, keys: int) -> Tensor:
    query, key = torch.arange(queries)[None, :, None], torch.arange(keys)[None, None, :]
    hidden = torch.zeros(len(lengths), queries, keys, dtype=torch.bool)
    if "hides-future" in properties:
        hidden = hidden | (key > query)
    if "hides-padding" in properties:
        hidden = hidden | (key >= lengths[:, None, None])
    return hidden


def _sizes(subject: Subject, role: str) -> tuple[int, int, Tensor]:
    """Return the numbers of queries and keys, and lengths of the side that the keys come from."""
    queries, keys = (time if subject.is_shrunk else time + MASK_TIME for time in subject.times(role))
    if subject.attention(role).self_attention:
        queries = keys
    return queries, keys, torch.tensor(sorted({1, max(1, keys // 2), max(1, keys - 1), keys}))
