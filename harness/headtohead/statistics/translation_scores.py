"""BLEU and chrF of sacreBLEU: the same scorers for the scores of a run and for their intervals and tests."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

References = tuple[tuple[str, ...], ...]
"""The references of each sentence."""

Counts = NDArray[np.int64]
"""Counts of n-grams and lengths, ``[sentence, count]``, or ``[count]`` summed over the sentences of a corpus."""


@lru_cache(maxsize=32)
def scorer(name: str, references: References) -> Any:
    """Return sacreBLEU's ``bleu`` or ``chrf`` with its statistics of the references.

    It is cached, as members of a stack and runs of a study share their references.
    """
    most = max(map(len, references))
    streams = [[own[i] if i < len(own) else None for own in references] for i in range(most)]
    return _scorer(name, references=streams)


def sentence_counts(scorer: Any, hypotheses: Sequence[str]) -> Counts:
    """Return the counts of each translation, ``[sentence, count]``, in the order of the scorer."""
    return np.array(scorer._extract_corpus_statistics(hypotheses, None), dtype=np.int64)


def corpus_score(scorer: Any, counts: Counts) -> float:
    """Return the score, 0 to 100, of summed counts ``[count]``."""
    return float(scorer._compute_score_from_stats(counts.tolist()).score)


def bleu_of_counts(counts: Sequence[int]) -> float:
    """Return corpus BLEU.

    Args:
        counts: Ten numbers as in results.json: matched n-grams and total n-grams of orders 1 to 4, the length of the
            translations and the length of the references.
    """
    return corpus_score(_scorer("bleu"), np.array([*counts[8:], *counts[:8]]))


def _scorer(name: str, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sacrebleu.metrics import BLEU, CHRF
    # The text is already split into words, so sacreBLEU must not tokenise it.
    return BLEU(tokenize="none", force=True, **given) if name == "bleu" else CHRF(**given)
