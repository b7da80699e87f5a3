"""A mask hides what it promises to hide, and nothing else, whole or step by step."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.families.entry import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject, full_keep
from headtohead.testing.verdict import Verdict, within, worst

QUERIES, KEYS = 5, 6
LENGTHS = torch.tensor([1, 3, KEYS])


@invariant("mask-promise")
def a_mask_does_what_it_promises(subject: Subject) -> Verdict:
    """Hidden is what the masking promises to hide; every live query sees some key."""
    return worst(*(_promise(subject, role) for role in ROLES))


@invariant("mask-steps")
def a_mask_is_the_same_step_by_step(subject: Subject) -> Verdict:
    """The mask of one query is its row of the whole mask, as cached decoding needs."""
    wrong = 0
    for role in ROLES:
        masking, lengths = subject.masking(role), LENGTHS
        queries, keys = _times(subject, role)
        whole = full_keep(masking, role, queries, keys, lengths)
        for place in range(queries):
            row = masking.keep(role, torch.tensor([place]), torch.arange(keys), lengths)
            shown = torch.ones(1, dtype=torch.bool) if row is None else row[:, 0]
            wrong += int((whole[:, place] != shown).sum())
    return within(float(wrong), "entries that differ between one query and all", 0.0)


def _promise(subject: Subject, role: str) -> Verdict:
    masking, lengths = subject.masking(role), LENGTHS
    queries, keys = _times(subject, role)
    kept = full_keep(masking, role, queries, keys, lengths)
    same_side = queries == keys
    live = torch.arange(queries)[None, :] < (lengths[:, None] if same_side else queries)
    blind = int((~kept.any(-1) & live).sum())
    if blind:
        return Verdict("broken", float(blind), f"{role}: live queries that see no key")
    promises = masking.promises or frozenset()
    hidden = _hidden(promises, lengths, queries, keys)
    wrong = kept & hidden
    if "shows-the-rest" in promises:
        wrong = kept == hidden
    return within(float(wrong.sum()), f"{role}: keys kept or hidden against the promise", 0.0)


def _hidden(promises: frozenset[str], lengths: Tensor, queries: int, keys: int) -> Tensor:
    row, column = torch.arange(queries)[None, :, None], torch.arange(keys)[None, None, :]
    hidden = torch.zeros(len(lengths), queries, keys, dtype=torch.bool)
    if "hides-future" in promises:
        hidden = hidden | (column > row)
    if "hides-padding" in promises:
        hidden = hidden | (column >= lengths[:, None, None])
    return hidden


def _times(subject: Subject, role: str) -> tuple[int, int]:
    """Return numbers of queries and keys that differ where they are of different sides."""
    return (KEYS, KEYS) if subject.attention(role).self_attention else (QUERIES, KEYS)
