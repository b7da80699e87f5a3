"""Words dropped silently because the vocabulary lacks them."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.data import Side
from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted, quoted


@shows("words dropped")
def words_dropped(case: Case) -> Iterator[Fact]:
    """Compare the words of the training sentences with those that reach the model."""
    train = case.data.splits["train"]
    sides: tuple[tuple[Side, list[str]], ...] = (("source", train.source_text), ("target", train.target_text))
    lost = {side: [_lost(case, side, text) for text in texts] for side, texts in sides}
    words = sorted({word for found in lost.values() for missing in found for word in missing})
    hit = sum(bool(any(found[row] for found in lost.values())) for row in range(len(train)))
    number = next((row for row in range(len(train)) if lost["source"][row]), None)
    shown = "" if number is None else f": {_example(case, number)}"
    yield Fact(
        "words dropped",
        f"{counted(len(words), 'word')} of the data ({quoted(words)}) "
        f"{'is' if len(words) == 1 else 'are'} dropped silently, in {hit} of "
        f"{counted(len(train), 'sentence')}{shown}"
        if words
        else "every word of the training sentences is in the vocabulary; of other sentences, words that are not vanish",
        {"words": len(words), "sentences": len(train), "sentences_hit": hit},
    )


def _lost(case: Case, side: Side, text: str) -> list[str]:
    vocabulary = case.data.vocabulary(side)
    return [word for word in case.data.tokenisers[side].split(text) if vocabulary.lacks(word)]


def _example(case: Case, row: int) -> str:
    train = case.data.splits["train"]
    decoded = case.data.source_vocabulary.decode(train.source[row].tolist())
    return f"'{train.source_text[row]}' reaches the model as '{decoded}'"
