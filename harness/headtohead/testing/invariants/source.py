"""The decoder hears the source: every live word of it, in every live place."""

from __future__ import annotations

import torch

from headtohead.testing.changing import each_word_changed
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, least, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond


@invariant("hears-source")
def every_source_word_reaches_the_logits(subject: Subject) -> Verdict:
    """Changing any one word of the source changes the logits of some target word."""
    rows = range(subject.sentences.source.shape[1])
    return beyond(
        worst_of([_heard(subject, row) for row in rows], largest_first=False),
        "least change of logits by one source word",
    )


def _heard(subject: Subject, row: int) -> Seen:
    """Return the least that one source word of a sentence, changed in turn, moves its logits."""
    plain, changed = each_word_changed(subject, row, "source")
    moved = (subject.logits(plain) - subject.logits(changed)).abs().amax(-1)
    most = moved.where(plain.live_target, 0.0).amax(-1)
    live = subject.sentences.live_source[:, row]
    return least(
        most.where(live, torch.inf),
        ("member", "word"),
        lambda at: (
            f"changing source word {at['word']} of sentence {row} moves the logits of member {at['member']} at most"
        ),
    )
