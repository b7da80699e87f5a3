"""The decoder never hears what it has yet to say."""

from __future__ import annotations

from dataclasses import replace

import torch

from headtohead.testing.changing import each_word_changed
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, largest, logit, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, outside, within


@invariant("causality")
def future_tokens_never_reach_earlier_logits(subject: Subject) -> Verdict:
    """Changing a target token changes no logits before it."""
    number = worst_of([_heard(subject, row) for row in range(subject.sentences.source.shape[1])])
    if not subject.is_causal:
        return outside("the decoder's mask does not hide the future", number, "later tokens change earlier logits")
    return within(number, "change of logits before a changed target token")


def _heard(subject: Subject, row: int) -> Seen:
    """Return how much each token of one sentence, changed in turn, moves earlier logits."""
    plain, changed = each_word_changed(subject, row, "target")
    time = plain.target.shape[-1]
    full = torch.full_like(plain.target_lengths, time)
    plain, changed = (replace(one, target_lengths=full) for one in (plain, changed))
    moved = (subject.logits(plain) - subject.logits(changed)).abs()
    earlier = torch.ones(time, time).tril(-1).bool().unsqueeze(-1)
    return largest(
        moved.where(earlier, 0.0),
        ("member", "token", "place", "word"),
        lambda at: f"changing target token {at['token']} of sentence {row} moves {logit(at)}",
    )
