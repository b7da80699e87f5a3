"""The decoder hears the target: every token that its mask shows, however far behind."""

from __future__ import annotations

import torch

from headtohead.testing.changing import each_word_changed
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, least, worst_of
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond


@invariant("hears-target")
def every_target_token_reaches_the_logits_it_is_shown_to(subject: Subject) -> Verdict:
    """Changing a target token changes the logits of every token that the decoder shows it to."""
    rows = range(subject.sentences.source.shape[1])
    return beyond(
        worst_of([_heard(subject, row) for row in rows], largest_first=False),
        "least change of the logits of a token by one that it sees",
    )


def _heard(subject: Subject, row: int) -> Seen:
    """Return the least that a live token of a sentence moves the logits of one that sees it."""
    plain, changed = each_word_changed(subject, row, "target")
    moved = (subject.logits(plain) - subject.logits(changed)).abs().amax(-1)
    live = subject.sentences.live_target[:, row]
    # [member, key, query]: each copy of the sentence has another token changed.
    shown = subject.mask("decoder")[:, row].transpose(-2, -1)
    both = shown & live.unsqueeze(-1) & live.unsqueeze(-2)
    return least(
        moved.where(both, torch.inf),
        ("member", "token", "place"),
        lambda at: (
            f"changing target token {at['token']} of sentence {row} moves the logits at "
            f"place {at['place']} of member {at['member']} at most"
        ),
    )
