"""How logits depend on the tokens of both sides: never on later target tokens, and on every visible token."""

from __future__ import annotations

from dataclasses import replace

import torch

from headtohead.testing.extremum import Extremum, largest, logit, maximum_of, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.token_changes import change_each_token
from headtohead.testing.verdict import Verdict, beyond, outside, within


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


@invariant("target-reaches-logits")
def every_target_token_changes_the_logits_of_its_queries(subject: Subject) -> Verdict:
    """Changing a target token changes the logits at every position that attends to it."""
    sentences = range(subject.sentences.source.shape[1])
    return beyond(
        minimum_of([_smallest_change_of_target_tokens(subject, sentence) for sentence in sentences]),
        "smallest change of logits by changing a visible target token",
    )


def _smallest_change_of_target_tokens(subject: Subject, sentence: int) -> Extremum:
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
