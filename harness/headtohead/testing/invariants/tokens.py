"""How logits depend on the tokens of both sides: never on later target tokens, and on every visible token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from headtohead.data.vocabulary import SPECIALS
from headtohead.testing.extremum import Describe, largest, maximum_of, minimum_of, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import SentenceBatch, Subject
from headtohead.testing.verdict import Verdict, beyond, outside, within

SOURCE, TARGET = (
    f"changing {side} token {{changed}} of sentence {{sentence}} changes" for side in ("source", "target")
)


@invariant("causality")
def future_tokens_never_change_earlier_logits(subject: Subject) -> Verdict:
    """Changing a target token changes no logits before it."""
    time = subject.sentences.target.shape[-1]
    earlier = torch.ones(time, time).tril(-1).bool().unsqueeze(-1)
    change = maximum_of(
        [
            largest(
                change.where(earlier, 0.0),
                ("member", "changed", "position", "token"),
                _described(sentence, f"{TARGET} logit {{token}} at position {{position}} of member {{member}}"),
            )
            for sentence, change in _changes(subject, "target", full_length=True)
        ]
    )
    if not subject.is_causal:
        return outside("the decoder's mask does not hide the future", change, "later tokens change earlier logits")
    return within(change, "change of logits before a changed target token")


@invariant("source-reaches-logits")
def every_source_token_changes_the_logits(subject: Subject) -> Verdict:
    """Changing any source token changes the logits at some target position."""
    extrema = [
        smallest(
            change.amax(-1)
            .where(subject.sentences.target_nonpad[:, sentence].unsqueeze(1), 0.0)
            .amax(-1)
            .where(subject.sentences.source_nonpad[:, sentence], torch.inf),
            ("member", "changed"),
            _described(sentence, f"{SOURCE} the logits of member {{member}} at most"),
        )
        for sentence, change in _changes(subject, "source")
    ]
    return beyond(minimum_of(extrema), "smallest change of logits by changing a source token")


@invariant("target-reaches-logits")
def every_target_token_changes_the_logits_of_its_queries(subject: Subject) -> Verdict:
    """Changing a target token changes the logits at every position that attends to it."""
    # [member, sentence, key, query]: in copy i of a sentence, key i is changed.
    visible, nonpad = subject.mask("decoder").transpose(-2, -1), subject.sentences.target_nonpad
    pairs = visible & nonpad.unsqueeze(-1) & nonpad.unsqueeze(-2)
    extrema = [
        smallest(
            change.amax(-1).where(pairs[:, sentence], torch.inf),
            ("member", "changed", "position"),
            _described(sentence, f"{TARGET} the logits at position {{position}} of member {{member}} at most"),
        )
        for sentence, change in _changes(subject, "target")
    ]
    return beyond(minimum_of(extrema), "smallest change of logits by changing a visible target token")


def _described(sentence: int, text: str) -> Describe:
    return lambda at: text.format(sentence=sentence, **at)


def _changes(
    subject: Subject, side: Literal["source", "target"], full_length: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each sentence, and the change of its logits by changing each of its tokens.

    The changes have the shape ``[member, changed token, time, vocab]``; padding is changed, too. With ``full_length``,
    padding of the target counts as tokens.
    """
    sentences = subject.sentences
    time = getattr(sentences, side).shape[-1]
    first, vocab_size = len(SPECIALS), subject.vocab_sizes[0 if side == "source" else 1]
    for sentence in range(sentences.source.shape[1]):
        only = slice(sentence, sentence + 1)
        lengths = sentences.target_lengths[:, only].repeat(1, time)
        copies = SentenceBatch(
            sentences.source[:, only].repeat(1, time, 1),
            sentences.source_lengths[:, only].repeat(1, time),
            sentences.target[:, only].repeat(1, time, 1),
            torch.full_like(lengths, sentences.target.shape[-1]) if full_length else lengths,
        )
        ids = getattr(copies, side).clone()
        for position in range(time):
            ids[:, position, position] = first + (ids[:, position, position] - first + 1) % (vocab_size - first)
        changed = replace(copies, **{side: ids})
        yield sentence, (subject.logits(copies) - subject.logits(changed)).abs()
