"""The decoder never hears what it has yet to say."""

from __future__ import annotations

from dataclasses import replace

import torch

from headtohead.data.vocabulary import SPECIALS
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Sentences, Subject
from headtohead.testing.verdict import Verdict, outside, within


@invariant("causality")
def future_tokens_never_reach_earlier_logits(subject: Subject) -> Verdict:
    """Changing a target token changes no logits before it."""
    number = max(_heard(subject, row) for row in range(subject.sentences.source.shape[1]))
    if not subject.hides("future", "decoder"):
        return outside("the decoder's mask does not hide the future", number,
                       "later tokens change earlier logits")  # fmt: skip
    return within(number, "change of logits before a changed target token")


def _heard(subject: Subject, row: int) -> float:
    """Return how much each token of one sentence, changed in turn, moves earlier logits."""
    sentences = subject.sentences
    time = sentences.target.shape[-1]
    words = subject.words[1]
    target = sentences.target[:, row : row + 1].repeat(1, time, 1)
    changed = target.clone()
    for place in range(1, time):
        first = len(SPECIALS)
        changed[:, place, place] = first + (changed[:, place, place] - first + 1) % (words - first)
    full = torch.full(target.shape[:2], time)
    one = Sentences(
        sentences.source[:, row : row + 1].repeat(1, time, 1),
        sentences.source_lengths[:, row : row + 1].repeat(1, time), target, full,
    )  # fmt: skip
    moved = (subject.logits(one) - subject.logits(replace(one, target=changed))).abs().amax(-1)
    earlier = torch.ones(time, time).tril(-1).bool()
    return float(moved[:, earlier].max())
