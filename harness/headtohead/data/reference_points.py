"""Answers that need no training, and their scores: reference points for the scores of models."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.data.prepared import PreparedData
from headtohead.errors import UndefinedError

MAX_TARGETS = 100
"""Maximum number of different training targets with which the most frequent target is a reference point."""

ROWS_AT_ONCE = 64
"""Number of test sentences that are compared with all training sentences at once."""


def nearest_neighbours(sources: Sequence[str], train: Sequence[str]) -> NDArray[np.int64]:
    """Return, for each source, the row of the most similar training source; of equally similar rows the first.

    The similarity is the cosine of TF-IDF vectors of words: the count of a word times log((1 + n) / (1 + d)) + 1, where
    d of n training sentences contain the word. Words that training lacks do not count; a source without known words
    has the first row.

    >>> nearest_neighbours(["a cat"], ["a dog", "the cat", "a cat sleeps"]).tolist()
    [2]
    """
    from scipy import sparse

    columns: dict[str, int] = {}
    for sentence in train:
        for word in sentence.split():
            columns.setdefault(word, len(columns))
    counts = _counts(train, columns)
    documents = np.bincount(counts.indices, minlength=len(columns))
    weights = sparse.diags_array(np.log((1 + len(train)) / (1 + documents)) + 1)
    weighted = counts @ weights
    lengths = np.sqrt(weighted.multiply(weighted).sum(axis=1))
    factors = 1 / np.where(lengths > 0, lengths, math.inf)
    unit_vectors = sparse.diags_array(factors) @ weighted
    unit_columns = unit_vectors.T.tocsr()
    # The length of a query's own vector does not change which row is the most similar.
    queries = _counts(sources, columns) @ weights
    nearest = []
    for start in range(0, len(sources), ROWS_AT_ONCE):
        similarities = queries[start : start + ROWS_AT_ONCE] @ unit_columns
        nearest.append(similarities.toarray().argmax(axis=1))
    return np.concatenate(nearest)


def nearest_neighbour_translations(data: PreparedData, rows: Sequence[int]) -> list[str]:
    """Return, for rows of the test split, the translation of the most similar training source."""
    train = data.splits["train"]
    sources = [data.splits["test"].source_text[row] for row in rows]
    neighbours = nearest_neighbours(sources, train.source_text)
    return [train.target_text[index] for index in neighbours.tolist()]


def vocabulary_bound_translations(data: PreparedData, rows: Sequence[int]) -> list[str]:
    """Return, for rows of the test split, the reference as the target vocabulary reproduces it.

    Unknown words are replaced or dropped as in training. Of several references, the first that the vocabulary
    reproduces exactly is taken, else the sentence's own.
    """
    test = data.splits["test"]
    tokeniser = replace(data.tokenisers["target"], max_tokens=None)

    def reproduced(text: str) -> str:
        ids = tokeniser.ids(tokeniser.unit.split(text))
        return tokeniser.prepared(ids)

    def is_exact(text: str) -> bool:
        try:
            return reproduced(text) == text
        except UndefinedError:
            return False

    translations = []
    for row in rows:
        exact = next(filter(is_exact, test.references[row]), None)
        translations.append(exact or reproduced(test.target_text[row]))
    return translations


def majority_target(data: PreparedData) -> str | None:
    """Return the most frequent training target, or None if there are more than ``MAX_TARGETS`` different targets."""
    counts = Counter(data.splits["train"].target_text)
    if len(counts) > MAX_TARGETS:
        return None
    [(target, _)] = counts.most_common(1)
    return target


def losses_without_model(
    train: Sequence[NDArray[np.int32]], test: Sequence[NDArray[np.int32]], size: int
) -> dict[str, float]:
    """Return the loss of a unigram and of a bigram model of the training tokens on test, in nats per token.

    The unigram model counts every token once more than training does. The bigram model of token b after a is
    (n(ab) + p(b)) / (n(a) + 1), where n counts training and p is the unigram model.

    Args:
        train: The ids of each training sequence; its first token is not predicted.
        test: The ids of each test sequence.
        size: The number of tokens of the vocabulary.
    """
    train_before, train_after = _neighbours(train)
    unigram = (np.bincount(train_after, minlength=size) + 1) / (len(train_after) + size)
    pairs, pair_counts = np.unique(train_before * size + train_after, return_counts=True)
    before_counts = np.bincount(train_before, minlength=size)

    before, after = _neighbours(test)
    test_pairs = before * size + after
    index = np.searchsorted(pairs, test_pairs).clip(max=len(pairs) - 1)
    count = np.where(pairs[index] == test_pairs, pair_counts[index], 0)
    bigram = (count + unigram[after]) / (before_counts[before] + 1)
    return {
        "unigram": -float(np.log(unigram[after]).mean()),
        "bigram": -float(np.log(bigram).mean()),
    }


def _neighbours(
    sequences: Sequence[NDArray[np.int32]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of neighbouring tokens of the sequences: the first of each pair, and the second."""
    before = np.concatenate([ids[:-1] for ids in sequences])
    after = np.concatenate([ids[1:] for ids in sequences])
    return before.astype(np.int64), after.astype(np.int64)


def bag_of_words_upper_bound(
    sources: Sequence[str], references: Sequence[Sequence[str]]
) -> float | None:
    """Return the highest exact match that a model can reach if it ignores the order of the source words.

    Such a model has one output per bag of words. The bound is the sum over bags of the largest
    number of sentences that accept the same translation, divided by the number of sentences; None
    without sentences. A repeated sentence counts once, as in exact match.

    >>> bag_of_words_upper_bound(["a b", "b a", "c", "c"], [["x"], ["y"], ["z"], ["z"]])
    0.6666666666666666
    """
    distinct = dict(zip(sources, references, strict=True))
    if not distinct:
        return None
    # Number of sources that accept each translation, by the bag of words of the source.
    accepting: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for source, translations in distinct.items():
        bag = tuple(sorted(source.split()))
        accepting[bag].update(set(translations))
    most = sum(max(counts.values()) for counts in accepting.values())
    return most / len(distinct)


def _counts(sentences: Sequence[str], columns: dict[str, int]) -> Any:
    """Return the counts of known words ``[sentence, word]`` as a sparse array."""
    from scipy import sparse

    indices: list[int] = []
    ends = [0]
    values: list[int] = []
    for sentence in sentences:
        for word, count in Counter(sentence.split()).items():
            if word in columns:
                indices.append(columns[word])
                values.append(count)
        ends.append(len(indices))
    shape = (len(sentences), len(columns))
    return sparse.csr_array((np.array(values, dtype=np.float64), indices, ends), shape=shape)
