"""The decoder hears the source: every live word of it, in every live place."""

from __future__ import annotations

from dataclasses import replace

import torch

from headtohead.data.vocabulary import SPECIALS
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Sentences, Subject
from headtohead.testing.verdict import Verdict, beyond


@invariant("hears-source")
def every_source_word_reaches_the_logits(subject: Subject) -> Verdict:
    """Changing any one word of the source changes the logits of some target word."""
    rows = range(subject.sentences.source.shape[1])
    return beyond(
        min(_heard(subject, row) for row in rows), "least change of logits by one source word"
    )


def _heard(subject: Subject, row: int) -> float:
    """Return the least that one source word of a sentence, changed in turn, moves its logits."""
    sentences, first = subject.sentences, len(SPECIALS)
    time, words = sentences.source.shape[-1], subject.words[0]
    copies = Sentences(
        sentences.source[:, row : row + 1].repeat(1, time, 1),
        sentences.source_lengths[:, row : row + 1].repeat(1, time),
        sentences.target[:, row : row + 1].repeat(1, time, 1),
        sentences.target_lengths[:, row : row + 1].repeat(1, time),
    )
    changed = copies.source.clone()
    for place in range(time):
        changed[:, place, place] = first + (changed[:, place, place] - first + 1) % (words - first)
    moved = subject.logits(copies) - subject.logits(replace(copies, source=changed))
    most = moved.abs().amax(-1).where(copies.live_target, 0.0).amax(-1)
    live = torch.arange(time) < sentences.source_lengths[:, row : row + 1]
    return float(most.where(live, torch.inf).min())
