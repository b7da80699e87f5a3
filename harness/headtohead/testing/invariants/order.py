"""The logits depend on the order of the source tokens, unless the variant is order-invariant."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headtohead.testing.extremum import Extremum, largest_logit_change, smallest
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply, outside, within, worst

SOURCE_IGNORED = "the decoder does not attend to the encoder"

SHORTEST = 3
"""Length of the shortest source; with two tokens, reversal is the only reordering."""


@invariant("source-order")
def source_order_changes_logits_unless_the_variant_is_order_invariant(subject: Subject) -> Verdict:
    """Exchanging two source tokens changes the logits if and only if positions are encoded."""
    if not subject.model.attends_to_source:
        return does_not_apply(SOURCE_IGNORED)
    order = torch.arange(subject.sentences.source.shape[-1])
    if len(order) < SHORTEST:
        return does_not_apply("the source is too short to have an order")
    order[:2] = order[:2].flip(0)
    reordering = _Reordering(subject, order.expand_as(subject.sentences.source), "exchanging source tokens 0 and 1")
    return _judge(
        reordering,
        reordering.invariant_sentences("order-invariant"),
        "change of logits of an order-invariant variant by reordering the source",
        "smallest change of logits by exchanging two source tokens",
    )


@invariant("source-mirror")
def source_reversal_changes_logits_unless_the_encoding_is_symmetric(subject: Subject) -> Verdict:
    """Reversing the source changes the logits if and only if direction is encoded."""
    if not subject.model.attends_to_source:
        return does_not_apply(SOURCE_IGNORED)
    positions = torch.arange(subject.sentences.source.shape[-1])
    if len(positions) < SHORTEST:
        return does_not_apply("the source is too short to have an order")
    positions = positions.expand_as(subject.sentences.source)
    lengths = subject.sentences.source_lengths.unsqueeze(-1)
    reversed_order = torch.where(positions < lengths, lengths - 1 - positions, positions)
    reordering = _Reordering(subject, reversed_order, "reversing the source")
    order_invariant = reordering.invariant_sentences("order-invariant")
    unchanged = reordering.invariant_sentences("mirror-invariant") | order_invariant
    if bool((unchanged & ~order_invariant).any()) and not subject.hides("padding", "encoder"):
        predicted = "reversing the tokens, and not the padding, changes logits at non-padding positions"
        return outside("the encoder attends to padding", reordering.largest_change(unchanged), predicted)
    return _judge(
        reordering,
        unchanged,
        "change of logits of a mirror-invariant variant by reversing the source",
        "smallest change of logits by reversing the source",
    )


def _judge(reordering: _Reordering, unchanged: Tensor, must_be_zero: str, must_not_be_zero: str) -> Verdict:
    verdicts = []
    if bool(unchanged.any()):
        verdicts.append(within(reordering.largest_change(unchanged), must_be_zero))
    if not bool(unchanged.all()):
        verdicts.append(beyond(reordering.smallest_change(~unchanged), must_not_be_zero))
    return worst(*verdicts)


class _Reordering:
    """Changes of the logits after reordering the tokens of every source.

    Args:
        subject: The subject under test.
        order: The original position of each token, ``[member, batch, time]``.
        action: The reordering in words, for the counterexample.
    """

    def __init__(self, subject: Subject, order: Tensor, action: str) -> None:
        source = subject.sentences.source.gather(-1, order)
        logits = subject.logits(replace(subject.sentences, source=source))
        self.subject, self.order, self.action = subject, order, action
        self.change = (logits - subject.reference_logits).abs()

    def invariant_sentences(self, name: str) -> Tensor:
        """Return the sentences ``[member, batch]`` on which the variant is invariant to the reordering.

        Encodings, scores and masks must all be invariant. An order-invariant encoding has every
        other invariance, too.
        """
        subject = self.subject
        by_property = subject.has_property("encoder", name) or subject.has_property("encoder", "order-invariant")
        by_modules = (
            by_property
            and subject.has_property("cross", "order-invariant")
            and not (subject.position_dependent("encoder") or subject.position_dependent("cross"))
        )
        if not by_modules:
            return torch.zeros(self.order.shape[:2], dtype=torch.bool)
        encoder, cross = subject.mask("encoder"), subject.mask("cross")
        same = _reordered(_reordered(encoder, self.order, -1), self.order, -2) == encoder
        same = same | ~subject.sentences.source_nonpad.unsqueeze(-1)  # outputs at padding are never used
        return same.all(-1).all(-1) & (_reordered(cross, self.order, -1) == cross).all(-1).all(-1)

    def largest_change(self, sentences: Tensor) -> Extremum:
        """Return the largest change of a logit at a non-padding position of some sentences."""
        positions = self.subject.sentences.target_nonpad & sentences.unsqueeze(-1)
        return largest_logit_change(self.change, positions, self.action)

    def smallest_change(self, sentences: Tensor) -> Extremum:
        """Return the smallest change at a non-padding position of those sentences that are long enough."""
        batch = self.subject.sentences
        long = sentences & (batch.source_lengths >= SHORTEST)
        return smallest(
            self.change.amax(-1).where(batch.target_nonpad & long.unsqueeze(-1), torch.inf),
            ("member", "sentence", "position"),
            lambda at: (
                f"{self.action} changes the logits at position {at['position']} of sentence "
                f"{at['sentence']} of member {at['member']} at most"
            ),
        )


def _reordered(mask: Tensor, order: Tensor, axis: int) -> Tensor:
    """Return a mask ``[member, batch, query, key]`` with one axis reordered."""
    index = order.unsqueeze(-2 if axis == -1 else -1).expand_as(mask)
    return mask.gather(axis, index)
