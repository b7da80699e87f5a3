"""Whether the encoder hears the order of the words, its mirror image, or a bag of them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headtohead.testing.invariant import invariant
from headtohead.testing.seen import Seen, least, moved_logit
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply, outside, within, worst

DEAF = "the decoder does not read the encoder"

LEAST_WORDS = 3
"""A sentence of two words has no other order than its mirror image."""


@invariant("source-order")
def order_of_the_source_is_heard_unless_nothing_tells_it(subject: Subject) -> Verdict:
    """Exchanging two source words changes logits, except exactly where nothing tells places."""
    if not subject.model.attends_to_source:
        return does_not_apply(DEAF)
    places = torch.arange(subject.sentences.source.shape[-1])
    if len(places) < LEAST_WORDS:
        return does_not_apply("the source is too short to have an order")
    places[:2] = places[:2].flip(0)
    asked = _Asked(subject, places.expand_as(subject.sentences.source), "exchanging words 0 and 1")
    blind = asked.blind("order-invariant")
    return _judge(
        asked,
        blind,
        "change of logits by reordering a bag of words",
        "least change of logits by exchanging two source words",
    )


@invariant("source-mirror")
def mirror_image_of_the_source_is_heard_unless_encoding_is_symmetric(subject: Subject) -> Verdict:
    """Reversing the source changes logits, except exactly where distance alone is told."""
    if not subject.model.attends_to_source:
        return does_not_apply(DEAF)
    places = torch.arange(subject.sentences.source.shape[-1])
    if len(places) < LEAST_WORDS:
        return does_not_apply("the source is too short to have an order")
    places = places.expand_as(subject.sentences.source)
    lengths = subject.sentences.source_lengths.unsqueeze(-1)
    places = torch.where(places < lengths, lengths - 1 - places, places)
    asked = _Asked(subject, places, "reversing the source")
    order_blind = asked.blind("order-invariant")
    blind = asked.blind("mirror-invariant") | order_blind
    if bool((blind & ~order_blind).any()) and not subject.hides("padding", "encoder"):
        what = "reversing the words, and not the padding, changes live logits"
        return outside("the encoder sees padding", asked.most(blind), what)
    return _judge(
        asked, blind, "change of live logits by reversing the source", "least change of logits by reversing the source"
    )


def _judge(asked: _Asked, blind: Tensor, unmoved: str, moved: str) -> Verdict:
    verdicts = []
    if bool(blind.any()):
        verdicts.append(within(asked.most(blind), unmoved))
    if not bool(blind.all()):
        verdicts.append(beyond(asked.least(~blind), moved))
    return worst(*verdicts)


class _Asked:
    """How logits moved when the words of every source were taken from other places.

    Args:
        subject: Who is asked.
        places: Where each word is taken from, ``[member, batch, time]``.
        doing: The same in words.
    """

    def __init__(self, subject: Subject, places: Tensor, doing: str) -> None:
        source = subject.sentences.source.gather(-1, places)
        logits = subject.logits(replace(subject.sentences, source=source))
        self.subject, self.places, self.doing = subject, places, doing
        self.moved = (logits - subject.plain).abs()

    def blind(self, promise: str) -> Tensor:
        """Return the sentences of which neither encoding, scores nor masks tell the difference.

        ``[member, batch]``. An encoding that tells nothing tells no directions either.
        """
        subject = self.subject
        encoding = subject.properties("encoder", promise) or subject.properties("encoder", "order-invariant")
        silent = (
            encoding
            and subject.properties("cross", "order-invariant")
            and not (subject.position_dependent("encoder") or subject.position_dependent("cross"))
        )
        if not silent:
            return torch.zeros(self.places.shape[:2], dtype=torch.bool)
        own, read = subject.mask("encoder"), subject.mask("cross")
        same = _taken(_taken(own, self.places, -1), self.places, -2) == own
        same = same | ~subject.sentences.live_source.unsqueeze(-1)  # nobody reads what pads see
        return same.all(-1).all(-1) & (_taken(read, self.places, -1) == read).all(-1).all(-1)

    def most(self, which: Tensor) -> Seen:
        """Return the largest change of a live logit among some sentences."""
        live = self.subject.sentences.live_target & which.unsqueeze(-1)
        return moved_logit(self.moved, live, self.doing)

    def least(self, which: Tensor) -> Seen:
        """Return the least change at a live place, of some sentences that are long enough."""
        sentences = self.subject.sentences
        long = which & (sentences.source_lengths >= LEAST_WORDS)
        return least(
            self.moved.amax(-1).where(sentences.live_target & long.unsqueeze(-1), torch.inf),
            ("member", "sentence", "place"),
            lambda at: (
                f"{self.doing} moves the logits at place {at['place']} of sentence "
                f"{at['sentence']} of member {at['member']} at most"
            ),
        )


def _taken(mask: Tensor, places: Tensor, axis: int) -> Tensor:
    """Return a mask ``[member, batch, query, key]`` with one axis taken from other places."""
    index = places.unsqueeze(-2 if axis == -1 else -1).expand_as(mask)
    return mask.gather(axis, index)
