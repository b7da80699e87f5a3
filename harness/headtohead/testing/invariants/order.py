"""Whether the encoder hears the order of the words, its mirror image, or a bag of them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply, outside, within

DEAF = "the decoder does not read the encoder"

LEAST_WORDS = 3
"""A sentence of two words has no other order than its mirror image."""


@invariant("source-order")
def order_of_the_source_is_heard_unless_nothing_tells_it(subject: Subject) -> Verdict:
    """Exchanging two source words changes logits, except exactly where nothing tells places."""
    if not subject.model.hears_source:
        return does_not_apply(DEAF)
    places = torch.arange(subject.sentences.source.shape[-1])
    places[:2] = places[:2].flip(0)
    moved = _moved(subject, places.expand_as(subject.sentences.source))
    if _blind(subject, "order-blind"):
        return within(float(moved.max()), "change of logits by reordering a bag of words")
    return beyond(_least(subject, moved), "least change of logits by exchanging two source words")


@invariant("source-mirror")
def mirror_image_of_the_source_is_heard_unless_encoding_is_symmetric(subject: Subject) -> Verdict:
    """Reversing the source changes logits, except exactly where distance alone is told."""
    if not subject.model.hears_source:
        return does_not_apply(DEAF)
    lengths = subject.sentences.source_lengths.unsqueeze(-1)
    places = torch.arange(subject.sentences.source.shape[-1]).expand_as(subject.sentences.source)
    moved = _moved(subject, torch.where(places < lengths, lengths - 1 - places, places))
    most = float(moved[subject.sentences.live_target].max())
    if _blind(subject, "order-blind"):
        return within(most, "change of logits by reversing a bag of words")
    if _blind(subject, "mirror-blind") and not subject.hides("padding", "encoder"):
        what = "reversing the words, and not the padding, changes live logits"
        return outside("the encoder sees padding", most, what)
    if _blind(subject, "mirror-blind"):
        return within(most, "change of live logits by reversing the source")
    return beyond(_least(subject, moved), "least change of logits by reversing the source")


def _moved(subject: Subject, places: Tensor) -> Tensor:
    """Return how much logits move when source words are taken from other places."""
    source = subject.sentences.source.gather(-1, places)
    logits = subject.logits(replace(subject.sentences, source=source))
    return (logits - subject.plain).abs().amax(-1)


def _least(subject: Subject, moved: Tensor) -> float:
    sentences = subject.sentences
    long = sentences.source_lengths.unsqueeze(-1) >= LEAST_WORDS
    return float(moved.where(sentences.live_target & long, torch.inf).min())


def _blind(subject: Subject, promise: str) -> bool:
    """Tell whether neither positions nor masks give more away than the promise says."""
    cross = subject.promises("cross", "order-blind")
    masks = subject.sees_all("encoder") and subject.sees_all("cross")
    return subject.promises("encoder", promise) and cross and masks
