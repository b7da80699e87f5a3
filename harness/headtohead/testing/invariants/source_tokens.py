"""The logits depend on every source token."""

from __future__ import annotations

import torch

from headtohead.testing.extremum import Extremum, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.token_changes import change_each_token
from headtohead.testing.verdict import Verdict, beyond


@invariant("source-reaches-logits")
def every_source_token_changes_the_logits(subject: Subject) -> Verdict:
    """Changing any source token changes the logits at some target position."""
    sentences = range(subject.sentences.source.shape[1])
    return beyond(
        minimum_of([_smallest_change(subject, sentence) for sentence in sentences]),
        "smallest change of logits by changing a source token",
    )


def _smallest_change(subject: Subject, sentence: int) -> Extremum:
    """Return the smallest change of a sentence's logits by changing one of its source tokens."""
    original, changed = change_each_token(subject, sentence, "source")
    change = (subject.logits(original) - subject.logits(changed)).abs().amax(-1)
    largest_in_sentence = change.where(original.target_nonpad, 0.0).amax(-1)
    nonpad = subject.sentences.source_nonpad[:, sentence]
    return smallest(
        largest_in_sentence.where(nonpad, torch.inf),
        ("member", "changed"),
        lambda at: (
            f"changing source token {at['changed']} of sentence {sentence} changes the logits of member "
            f"{at['member']} at most"
        ),
    )
