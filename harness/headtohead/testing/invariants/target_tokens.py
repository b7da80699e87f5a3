"""The logits depend on every target token that the decoder's mask shows, at any distance."""

from __future__ import annotations

import torch

from headtohead.testing.extremum import Extremum, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.token_changes import change_each_token
from headtohead.testing.verdict import Verdict, beyond


@invariant("target-reaches-logits")
def every_target_token_changes_the_logits_of_its_queries(subject: Subject) -> Verdict:
    """Changing a target token changes the logits at every position that attends to it."""
    sentences = range(subject.sentences.source.shape[1])
    return beyond(
        minimum_of([_smallest_change(subject, sentence) for sentence in sentences]),
        "smallest change of logits by changing a visible target token",
    )


def _smallest_change(subject: Subject, sentence: int) -> Extremum:
    """Return the smallest change of the logits at a position that attends to a changed token."""
    original, changed = change_each_token(subject, sentence, "target")
    change = (subject.logits(original) - subject.logits(changed)).abs().amax(-1)
    nonpad = subject.sentences.target_nonpad[:, sentence]
    # [member, key, query]: in copy i of the sentence, key i is changed.
    visible = subject.mask("decoder")[:, sentence].transpose(-2, -1)
    pairs = visible & nonpad.unsqueeze(-1) & nonpad.unsqueeze(-2)
    return smallest(
        change.where(pairs, torch.inf),
        ("member", "changed", "position"),
        lambda at: (
            f"changing target token {at['changed']} of sentence {sentence} changes the logits at "
            f"position {at['position']} of member {at['member']} at most"
        ),
    )
