"""The logits at a position do not depend on later target tokens."""

from __future__ import annotations

from dataclasses import replace

import torch

from headtohead.testing.extremum import Extremum, largest, logit, maximum_of
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.token_changes import change_each_token
from headtohead.testing.verdict import Verdict, outside, within


@invariant("causality")
def future_tokens_never_change_earlier_logits(subject: Subject) -> Verdict:
    """Changing a target token changes no logits before it."""
    sentences = range(subject.sentences.source.shape[1])
    change = maximum_of([_largest_change(subject, sentence) for sentence in sentences])
    if not subject.is_causal:
        return outside("the decoder's mask does not hide the future", change, "later tokens change earlier logits")
    return within(change, "change of logits before a changed target token")


def _largest_change(subject: Subject, sentence: int) -> Extremum:
    """Return the largest change of a logit before a changed token of one sentence."""
    original, changed = change_each_token(subject, sentence, "target")
    time = original.target.shape[-1]
    full = torch.full_like(original.target_lengths, time)
    original, changed = (replace(batch, target_lengths=full) for batch in (original, changed))
    difference = (subject.logits(original) - subject.logits(changed)).abs()
    earlier = torch.ones(time, time).tril(-1).bool().unsqueeze(-1)
    return largest(
        difference.where(earlier, 0.0),
        ("member", "changed", "position", "token"),
        lambda at: f"changing target token {at['changed']} of sentence {sentence} changes {logit(at)}",
    )
