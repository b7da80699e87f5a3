"""Copies of one sentence pair, each with a different token changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from headtohead.data.vocabulary import SPECIALS
from headtohead.testing.subject import SentenceBatch, Subject


def change_each_token(
    subject: Subject, sentence: int, side: Literal["source", "target"]
) -> tuple[SentenceBatch, SentenceBatch]:
    """Return copies of one sentence pair, and the same copies with token i changed in copy i.

    There are as many copies as the side has positions, padding included.
    """
    sentences = subject.sentences
    time = getattr(sentences, side).shape[-1]
    copies = SentenceBatch(
        sentences.source[:, sentence : sentence + 1].repeat(1, time, 1),
        sentences.source_lengths[:, sentence : sentence + 1].repeat(1, time),
        sentences.target[:, sentence : sentence + 1].repeat(1, time, 1),
        sentences.target_lengths[:, sentence : sentence + 1].repeat(1, time),
    )
    first, vocab_size = len(SPECIALS), subject.vocab_sizes[0 if side == "source" else 1]
    ids = getattr(copies, side).clone()
    for position in range(time):
        ids[:, position, position] = first + (ids[:, position, position] - first + 1) % (vocab_size - first)
    return copies, replace(copies, **{side: ids})
