"""One sentence many times over, in each copy another word changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from headtohead.data.vocabulary import SPECIALS
from headtohead.testing.subject import Sentences, Subject


def each_word_changed(subject: Subject, row: int, side: Literal["source", "target"]) -> tuple[Sentences, Sentences]:
    """Return copies of one pair of the subject, and the same with word i changed in copy i.

    There are as many copies as the side has tokens, padding included.
    """
    sentences = subject.sentences
    time = getattr(sentences, side).shape[-1]
    copies = Sentences(
        sentences.source[:, row : row + 1].repeat(1, time, 1),
        sentences.source_lengths[:, row : row + 1].repeat(1, time),
        sentences.target[:, row : row + 1].repeat(1, time, 1),
        sentences.target_lengths[:, row : row + 1].repeat(1, time),
    )
    first, words = len(SPECIALS), subject.words[0 if side == "source" else 1]
    ids = getattr(copies, side).clone()
    for place in range(time):
        ids[:, place, place] = first + (ids[:, place, place] - first + 1) % (words - first)
    return copies, replace(copies, **{side: ids})
