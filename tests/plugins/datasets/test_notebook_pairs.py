"""The sentence pairs of the notebooks, against their printed output."""

from __future__ import annotations

from collections.abc import Callable

IDS = {"he": 11, "she": 12, "writes": 34, "runs": 36, "fast": 23, "I": 1, "love": 2, "you": 3}
PRINTED_SOURCE_ROWS = {(11, 34), (1, 2, 3), (11, 36, 23)}


def test_en_fr_has_the_20_pairs_in_the_order_of_the_notebook(read: Callable) -> None:
    corpus = read("notebook-en-fr")
    assert len(corpus.pairs) == 20
    assert (corpus.pairs[0].source, corpus.pairs[0].target) == ("I love you", "Je t’aime")
    assert (corpus.pairs[19].source, corpus.pairs[19].target) == ("dog walks fast", "chien marche rapide")
    assert corpus.languages == ("English", "French")


def test_en_fr_gives_the_rows_that_the_notebook_prints(read: Callable) -> None:
    rows = {
        tuple(IDS[word] for word in pair.source.split())
        for pair in read("notebook-en-fr").pairs
        if set(pair.source.split()) <= set(IDS)
    }
    assert rows == PRINTED_SOURCE_ROWS


def test_en_de_has_the_50_pairs(read: Callable) -> None:
    corpus = read("notebook-en-de")
    assert len({pair.source for pair in corpus.pairs}) == len(corpus.pairs) == 50
    assert ("what time is it?", "wie spät ist es?") in {(p.source, p.target) for p in corpus.pairs}
    assert corpus.languages == ("English", "German")
