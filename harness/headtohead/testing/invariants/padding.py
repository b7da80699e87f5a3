"""Padding is not there: how many pads, what stands in them, and who shares the batch.

The three hold where padding is hidden from all who read the source, and those who read the target
hide padding or the future, which is where padding stands. Sentences of one length have no padding,
and are the same alone everywhere.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data.vocabulary import PAD, SPECIALS
from headtohead.schema.roles import ROLES
from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, moved_logit
from headtohead.testing.subject import Lengths, Sentences, Subject
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
    number = _moved(subject, logits, "adding two columns of padding to source and target")
    return _judge(subject, number, "change of live logits by added padding")


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
    number = _moved(subject, subject.logits(written), f"word {other} in the place of padding")
    return _judge(subject, number, "change of live logits by other ids in the padding")


@invariant("batch-of-one")
def a_batch_equals_its_sentences_alone(subject: Subject) -> Verdict:
    """A batch of N gives what N batches of one give."""
    even = _apart(subject, subject.draw_sentences(_even(subject.lengths)))
    if not even.number <= 1e-9:
        return within(even, "difference of logits alone and in a batch without any padding")
    what = "difference of logits alone and in a batch"
    return _judge(subject, _apart(subject, subject.sentences), what)


def _even(lengths: Lengths) -> Lengths:
    """Return lengths of the longest sentence for all."""
    source, target = (
        tuple((max(map(max, side)),) * len(row) for row in side) for side in (lengths.source, lengths.target)
    )
    return Lengths(source, target)


def _apart(subject: Subject, sentences: Sentences) -> Seen:
    """Return how far the logits of each sentence alone are from those in its batch."""
    together = subject.logits(sentences)
    logits = torch.zeros_like(together)
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
    return moved_logit(logits - together, sentences.live_target, "taking it out of its batch")


def _sees_padding(subject: Subject, role: str) -> bool:
    """Tell whether live logits may depend on padded keys of a role."""
    if role == "encoder" and not subject.model.attends_to_source:
        return False
    # Padding stands behind all live tokens of its own side.
    behind = subject.attention(role).self_attention and subject.hides("future", role)
    return not (behind or subject.hides("padding", role))


def _moved(subject: Subject, logits: Tensor, doing: str) -> Seen:
    return moved_logit(logits - subject.plain, subject.sentences.live_target, doing)


def _judge(subject: Subject, number: Seen, what: str) -> Verdict:
    seen = [role for role in ROLES if _sees_padding(subject, role)]
    if seen:
        return outside(f"padding is visible in {', '.join(seen)}", number, f"there is a {what}")
    return within(number, what)
