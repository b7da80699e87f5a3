"""Padding is not there: how many pads, what stands in them, and who shares the batch.

The three hold where padding is hidden from all who read the source, and those who read the target
hide padding or the future, which is where padding stands.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data.vocabulary import PAD, SPECIALS
from headtohead.families.entry import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Sentences, Subject
from headtohead.testing.verdict import Verdict, does_not_apply, outside, within


@invariant("pad-columns")
def more_padding_changes_nothing(subject: Subject) -> Verdict:
    """Pad columns added to source and target change no live logits."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder reads exactly {subject.only_length} tokens")
    sentences = subject.sentences
    wider = replace(
        sentences,
        source=functional.pad(sentences.source, (0, 2), value=PAD),
        target=functional.pad(sentences.target, (0, 2), value=PAD),
    )
    logits = subject.logits(wider)[:, :, : sentences.target.shape[-1]]
    return _judge(subject, _moved(subject, logits), "change of live logits by added padding")


@invariant("pad-content")
def what_stands_in_padding_is_never_read(subject: Subject) -> Verdict:
    """Other ids in the place of padding change no live logits."""
    sentences = subject.sentences
    other = len(SPECIALS) + 1
    written = replace(
        sentences,
        source=sentences.source.where(sentences.live_source, other),
        target=sentences.target.where(sentences.live_target, other),
    )
    moved = _moved(subject, subject.logits(written))
    return _judge(subject, moved, "change of live logits by other ids in the padding")


@invariant("batch-of-one")
def a_batch_equals_its_sentences_alone(subject: Subject) -> Verdict:
    """A batch of N gives what N batches of one give."""
    sentences = subject.sentences
    logits = torch.zeros_like(subject.plain)
    members, batch = sentences.source_lengths.shape
    for member in range(members):
        for row in range(batch):
            source_time = int(sentences.source_lengths[member, row])
            target_length = int(sentences.target_lengths[member, row])
            target_time = subject.only_length or target_length
            alone = Sentences(
                sentences.source[:, row : row + 1, :source_time],
                torch.full((members, 1), source_time),
                sentences.target[:, row : row + 1, :target_time],
                torch.full((members, 1), target_length),
            )
            logits[member, row, :target_time] = subject.logits(alone)[member, 0]
    return _judge(subject, _moved(subject, logits), "difference of logits alone and in a batch")


def _sees_padding(subject: Subject, role: str) -> bool:
    """Tell whether live logits may depend on padded keys of a role."""
    if role == "encoder" and not subject.model.hears_source:
        return False
    behind = role in subject.reading_target and subject.hides("future", role)
    return not (behind or subject.hides("padding", role))


def _moved(subject: Subject, logits: Tensor) -> float:
    return float((logits - subject.plain)[subject.sentences.live_target].abs().max())


def _judge(subject: Subject, number: float, what: str) -> Verdict:
    seen = [role for role in ROLES if _sees_padding(subject, role)]
    if seen:
        return outside(f"padding is visible in {', '.join(seen)}", number, f"there is a {what}")
    return within(number, what)
