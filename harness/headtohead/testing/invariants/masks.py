"""A mask hides what it promises to hide, and nothing else, whole or step by step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, largest
from headtohead.testing.subject import Subject, explicit_forward, full_keep
from headtohead.testing.verdict import Verdict, does_not_apply, within, worst

PAIR = ("sentence", "query", "key")


@invariant("mask-promise")
def a_mask_does_what_it_promises(subject: Subject) -> Verdict:
    """Hidden is what the masking promises to hide; every live query sees some key."""
    return worst(*(_form(subject, role) for role in ROLES), *(_promise(subject, role) for role in ROLES))


@invariant("mask-definition")
def a_mask_is_what_its_definition_says(subject: Subject) -> Verdict:
    """A mask is, pair by pair, what the masking says of one query and one key."""
    verdicts = [_definition(subject, role) for role in ROLES]
    return worst(*verdicts)


@invariant("mask-used")
def every_layer_masks_as_its_role_says(subject: Subject) -> Verdict:
    """In a pass of the model, every layer of a role has the mask of that role's masking."""
    seen: dict[str, list[Tensor]] = {role: [] for role in ROLES}

    def observe(role: str, layer: int | None, name: str, value: Tensor) -> None:
        if name == "mask":
            seen[role].append(value.any(2))

    with torch.no_grad():
        explicit_forward(subject.model, subject.sentences, observe)
    return worst(*(_used(subject, role, seen[role]) for role in ROLES), *_roles(subject))


@invariant("mask-steps")
def a_mask_is_the_same_step_by_step(subject: Subject) -> Verdict:
    """The mask of one query or sentence is its part of the whole mask, as decoding needs."""
    return worst(*(_steps(subject, role) for role in ROLES))


def _used(subject: Subject, role: str, seen: list[Tensor]) -> Verdict:
    mask = subject.mask(role)
    sizes = subject.config.model
    layers = sizes.encoder_layers if role == "encoder" else sizes.decoder_layers
    # Where nothing is masked, no mask is shown.
    masks = seen + [torch.ones_like(mask)] * (layers - len(seen))
    wrong = torch.stack([one != mask for one in masks]).double()
    where = largest(
        wrong,
        ("layer", "member", *PAIR),
        lambda at: (
            f"{role}: layer {at['layer']} treats key {at['key']} of sentence "
            f"{at['sentence']} otherwise than its masking, for query {at['query']}:"
        ),
    ).where.rpartition(":")[0]
    return within(Seen(float(wrong.sum()), where), f"{role}: pairs masked otherwise", 0.0)


def _roles(subject: Subject) -> Iterator[Verdict]:
    """Check that a name for all roles does not hide source words by target places."""
    masking = subject.config.masking
    if masking.cross.name != masking.decoder.name or not subject.model.attends_to_source:
        return
    mask = subject.mask("cross")
    wrong = (mask != mask[:, :, -1:]).double()
    where = largest(
        wrong,
        ("member", *PAIR),
        lambda at: (
            f"cross: key {at['key']} of sentence {at['sentence']} is hidden from query "
            f"{at['query']} or from the last one, not from both:"
        ),
    ).where.rpartition(":")[0]
    what = "cross: source words that some places of the target see and others do not"
    yield within(Seen(float(wrong.sum()), where), what, 0.0)


def _form(subject: Subject, role: str) -> Verdict:
    """Check type and shape: a transposed or a wrong one can fit by accident."""
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if not subject.attention(role).self_attention and queries == keys:
        keys += 1
    found = masking.mask(role, torch.arange(queries), torch.arange(keys), lengths)
    if found is None:
        return Verdict("holds", 0.0, f"{role}: masks nothing")
    fits = found.dim() == 3 and found.shape[1:] == (queries, keys)
    fits = fits and found.shape[0] in (1, len(lengths))
    if found.dtype != torch.bool or not fits:
        return Verdict(
            "broken",
            None,
            f"{role}: expected booleans [{len(lengths)} or 1, {queries}, {keys}], got "
            f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}",
        )
    return Verdict("holds", 0.0, f"{role}: booleans [batch or 1, query, key]")


def _promise(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    kept = full_keep(masking, role, queries, keys, lengths)
    live = torch.arange(queries)[None, :] < (lengths[:, None] if queries == keys else queries)
    blind = (~kept.any(-1) & live).double()
    if bool(blind.any()):
        seen = largest(blind, PAIR[:2], lambda at: _pair(at, lengths, role) + " sees no key:")
        return Verdict(
            "broken", float(blind.sum()), f"{role}: live queries that see no key", shown=seen.where.rpartition(":")[0]
        )
    properties = masking.role_properties(role) or frozenset()
    hidden = _hidden(properties, lengths, queries, keys)
    wrong = kept & hidden
    if "shows-the-rest" in properties:
        wrong = kept == hidden
    return _count(wrong, kept, lengths, role, "keys kept or hidden against the promise")


def _definition(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    if masking.may_attend(role, 0, 0, 1) is None:
        return does_not_apply(f"{role}: the masking does not define single pairs")
    kept = full_keep(masking, role, queries, keys, lengths)
    defined = torch.tensor(
        [
            [[bool(masking.may_attend(role, query, key, length)) for key in range(keys)] for query in range(queries)]
            for length in lengths.tolist()
        ]
    )
    return _count(kept != defined, kept, lengths, role, "pairs that differ from the definition")


def _steps(subject: Subject, role: str) -> Verdict:
    masking = subject.masking(role)
    queries, keys, lengths = _sizes(subject, role)
    whole = full_keep(masking, role, queries, keys, lengths)
    stepped = whole.clone()
    for place in range(queries):
        row = masking.mask(role, torch.tensor([place]), torch.arange(keys), lengths)
        stepped[:, place] = True if row is None else row[:, 0]
        if queries == keys:  # a cached step has no later keys yet
            so_far = masking.mask(role, torch.tensor([place]), torch.arange(place + 1), lengths)
            early = torch.ones(1, dtype=torch.bool) if so_far is None else so_far[:, 0]
            agree = stepped[:, place, : place + 1] == early
            stepped[:, place, : place + 1] = torch.where(
                agree, stepped[:, place, : place + 1], ~whole[:, place, : place + 1]
            )
    for sentence, length in enumerate(lengths):
        alone = full_keep(masking, role, queries, keys, length.unsqueeze(0))[0]
        stepped[sentence] = torch.where(alone == whole[sentence], stepped[sentence], ~whole[sentence])
    return _count(whole != stepped, whole, lengths, role, "entries that differ between one query or sentence and all")


def _count(wrong: Tensor, kept: Tensor, lengths: Tensor, role: str, what: str) -> Verdict:
    """Count wrong entries; the smallest sentence shows one."""

    def words(at: dict[str, int]) -> str:
        shown = "sees" if bool(kept[at["sentence"], at["query"], at["key"]]) else "does not see"
        return f"{_pair(at, lengths, role)} {shown} key {at['key']}:"

    where = largest(wrong.double(), PAIR, words).where.rpartition(":")[0]
    return within(Seen(float(wrong.sum()), where), f"{role}: {what}", 0.0)


def _pair(at: dict[str, int], lengths: Tensor, role: str) -> str:
    return f"{role}: over {int(lengths[at['sentence']])} live tokens, query {at['query']}"


def _hidden(properties: frozenset[str], lengths: Tensor, queries: int, keys: int) -> Tensor:
    row, column = torch.arange(queries)[None, :, None], torch.arange(keys)[None, None, :]
    hidden = torch.zeros(len(lengths), queries, keys, dtype=torch.bool)
    if "hides-future" in properties:
        hidden = hidden | (column > row)
    if "hides-padding" in properties:
        hidden = hidden | (column >= lengths[:, None, None])
    return hidden


MASK_TIME = 14
"""Tokens of the masks that are looked at: more than a window or prefix has by default."""


def _sizes(subject: Subject, role: str) -> tuple[int, int, Tensor]:
    """Return numbers of queries and keys, and lengths of the keys' side."""
    queries, keys = (_stretched(subject, time) for time in subject.times(role))
    if subject.attention(role).self_attention:
        queries = keys
    return queries, keys, torch.tensor(sorted({1, max(1, keys // 2), max(1, keys - 1), keys}))


def _stretched(subject: Subject, time: int) -> int:
    return time if subject.is_shrunk else time + MASK_TIME
