"""Padding has no effect: neither its amount, nor its ids, nor the other sentences of the batch.

The invariants apply where every mask over source tokens hides padding, and every mask over target
tokens hides padding or the future, since padding follows the tokens. A batch of sentences of equal
length has no padding, so that its sentences give the same logits alone under every mask.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.data.vocabulary import PAD, SPECIALS
from headtohead.testing.extremum import Extremum, largest_logit_change
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Lengths, SentenceBatch, Subject
from headtohead.testing.verdict import EXACT, Verdict, does_not_apply, outside, within


@invariant("pad-columns")
def more_padding_changes_no_logits(subject: Subject) -> Verdict:
    """Columns of padding added to source and target change no logits at non-padding positions."""
    if subject.only_length is not None:
        return does_not_apply(f"the decoder accepts exactly {subject.only_length} tokens")
    sentences = subject.sentences
    wider = replace(
        sentences,
        source=functional.pad(sentences.source, (0, 2), value=PAD),
        target=functional.pad(sentences.target, (0, 2), value=PAD),
    )
    logits = subject.logits(wider)[:, :, : sentences.target.shape[-1]]
    change = _largest_change(subject, logits, "adding two columns of padding to source and target")
    return _judge(subject, change, "change of logits by added padding")


@invariant("pad-content")
def padding_ids_change_no_logits(subject: Subject) -> Verdict:
    """Other ids at padding positions change no logits at non-padding positions."""
    sentences = subject.sentences
    other = len(SPECIALS) + 1
    changed = replace(
        sentences,
        source=sentences.source.where(sentences.source_nonpad, other),
        target=sentences.target.where(sentences.target_nonpad, other),
    )
    change = _largest_change(subject, subject.logits(changed), f"token {other} at padding positions")
    return _judge(subject, change, "change of logits by other ids at padding positions")


@invariant("batch-of-one")
def a_batch_equals_its_sentences_alone(subject: Subject) -> Verdict:
    """A batch of N sentences gives the logits of N batches of one sentence."""
    unpadded = _largest_change_alone(subject, subject.random_sentences(_equal_lengths(subject.lengths)))
    if not unpadded.number <= EXACT:
        return within(unpadded, "difference between logits alone and in a batch without padding")
    padded = _largest_change_alone(subject, subject.sentences)
    return _judge(subject, padded, "difference between logits alone and in a batch")


def _equal_lengths(lengths: Lengths) -> Lengths:
    """Return lengths that are all the largest of their side."""
    source, target = (
        tuple((max(map(max, side)),) * len(row) for row in side) for side in (lengths.source, lengths.target)
    )
    return Lengths(source, target)


def _largest_change_alone(subject: Subject, sentences: SentenceBatch) -> Extremum:
    """Return the largest difference between the logits of a sentence alone and in its batch."""
    together = subject.logits(sentences)
    logits = torch.zeros_like(together)
    members, batch = sentences.source_lengths.shape
    for member in range(members):
        for sentence in range(batch):
            source_time = int(sentences.source_lengths[member, sentence])
            target_length = int(sentences.target_lengths[member, sentence])
            target_time = subject.only_length or target_length
            alone = SentenceBatch(
                sentences.source[:, sentence : sentence + 1, :source_time],
                torch.full((members, 1), source_time),
                sentences.target[:, sentence : sentence + 1, :target_time],
                torch.full((members, 1), target_length),
            )
            logits[member, sentence, :target_time] = subject.logits(alone)[member, 0]
    return largest_logit_change(logits - together, sentences.target_nonpad, "taking it out of its batch")


def _padding_is_visible(subject: Subject, role: str) -> bool:
    """Return whether logits at non-padding positions may depend on padding keys of a role."""
    if role == "encoder" and not subject.model.attends_to_source:
        return False
    # In self-attention, padding keys are later than every non-padding query.
    in_future = subject.attention(role).self_attention and subject.hides("future", role)
    return not (in_future or subject.hides("padding", role))


def _largest_change(subject: Subject, logits: Tensor, change: str) -> Extremum:
    return largest_logit_change(logits - subject.reference_logits, subject.sentences.target_nonpad, change)


def _judge(subject: Subject, change: Extremum, quantity: str) -> Verdict:
    roles = [role for role in subject.roles if _padding_is_visible(subject, role)]
    if roles:
        return outside(f"padding is visible in {', '.join(roles)}", change, f"there is a {quantity}")
    return within(change, quantity)
