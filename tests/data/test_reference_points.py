"""Reference points without a model, compared with naive loops."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import bag_of_words_upper_bound, prepare_corpus
from headtohead.data.prepared import PreparedData
from headtohead.data.reference_points import (
    MAX_TARGETS,
    losses_without_model,
    majority_target,
    nearest_neighbours,
    vocabulary_bound_translations,
)
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import DataConfig, VocabularyConfig


def naive_similarities(source: str, train: Sequence[str]) -> list[float]:
    """Return the cosine of TF-IDF vectors by loops over words."""
    documents = Counter(word for sentence in train for word in set(sentence.split()))

    def vector(sentence: str) -> dict[str, float]:
        counts = Counter(word for word in sentence.split() if word in documents)
        return {
            word: n * (math.log((1 + len(train)) / (1 + documents[word])) + 1)
            for word, n in counts.items()
        }

    def cosine(left: dict[str, float], right: dict[str, float]) -> float:
        lengths = [math.sqrt(sum(value**2 for value in side.values())) for side in (left, right)]
        return (
            sum(left[word] * right.get(word, 0) for word in left) / math.prod(lengths)
            if all(lengths)
            else 0.0
        )

    return [cosine(vector(source), vector(sentence)) for sentence in train]


def test_neighbours_are_those_of_a_naive_loop() -> None:
    words, generator = [f"w{index}" for index in range(30)], np.random.default_rng(1)

    def sentences(number: int) -> list[str]:
        return [
            " ".join(generator.choice(words, size=generator.integers(1, 9))) for _ in range(number)
        ]

    train, sources = sentences(200), sentences(60)
    for source, found in zip(sources, nearest_neighbours(sources, train).tolist(), strict=True):
        similarities = naive_similarities(source, train)
        assert similarities[found] == pytest.approx(max(similarities), abs=1e-12)


def prepared(unknown: str = "token") -> PreparedData:
    """Return data whose target vocabulary lacks words of the test translations; "yo" is a second reference."""
    train = [
        ("i eat", "como"),
        ("you eat", "comes"),
        ("he eats it", "lo come"),
        ("he eats", "come"),
    ]
    test = [
        ("she eats", "ella come"),
        ("you eat it", "lo comes"),
        ("they eat", "comen"),
        ("they eat", "come"),
    ]
    pairs = [Pair(*pair, "", split="train") for pair in train] + [
        Pair(*pair, "", split="test") for pair in test
    ]
    pairs.append(Pair("i", "como", "", split="valid"))
    corpus = Corpus(pairs=pairs, licence="MIT", citation="", languages=("English", "Spanish"))
    vocabulary = VocabularyConfig(
        unknown=unknown, ids="standard" if unknown == "token" else "frequency"
    )
    return prepare_corpus(
        corpus, DataConfig(split="row", normalise="none", valid=1, test=1, vocabulary=vocabulary)
    )


def test_unknown_words_are_replaced_in_the_vocabulary_bound() -> None:
    """The second reference of "they eat" has only known words."""
    assert vocabulary_bound_translations(prepared(), [0, 1, 2]) == [
        "<unk> come",
        "lo comes",
        "come",
    ]


def test_unknown_words_are_dropped_in_the_vocabulary_bound() -> None:
    assert vocabulary_bound_translations(prepared("drop"), [0, 1]) == ["come", "lo comes"]


def test_the_most_frequent_target_is_a_reference_point_only_of_few_targets() -> None:
    data = prepared()
    assert majority_target(data) == "como"
    train = data.splits["train"]
    train.target_text[:] = ["come", "come", "comes", "lo come"]
    assert majority_target(data) == "come"
    train.target_text[:] = [f"come {index}" for index in range(MAX_TARGETS + 1)]
    assert majority_target(data) is None


CORPUS = st.lists(
    st.tuples(
        st.sampled_from(["a b", "b a", "a a b", "c", "a b c", "c b a"]),
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True),
    ),
    min_size=1,
    max_size=12,
)


def test_the_losses_without_a_model_are_those_of_counted_tokens_and_pairs() -> None:
    train, test = [[0, 1, 1, 2], [1, 0]], [[2, 1, 1], [3, 2]]
    predicted = [token for ids in train for token in ids[1:]]
    pairs = [pair for ids in train for pair in pairwise(ids)]
    unigram = [(predicted.count(token) + 1) / (len(predicted) + 4) for token in range(4)]
    wanted = [pair for ids in test for pair in pairwise(ids)]
    before = [first for first, _ in pairs]
    bigram = {(a, b): (pairs.count((a, b)) + unigram[b]) / (before.count(a) + 1) for a, b in wanted}
    found = losses_without_model(
        *([np.array(ids, dtype=np.int32) for ids in split] for split in (train, test)), 4
    )
    assert found["unigram"] == pytest.approx(
        -sum(math.log(unigram[b]) for _, b in wanted) / len(wanted)
    )
    assert found["bigram"] == pytest.approx(
        -sum(math.log(bigram[pair]) for pair in wanted) / len(wanted)
    )


@given(CORPUS)
def test_the_bound_is_the_best_score_of_all_functions_of_the_bag(
    corpus: list[tuple[str, list[str]]],
) -> None:
    distinct = dict(corpus)
    bags = sorted({tuple(sorted(source.split())) for source in distinct})
    best = 0
    for outputs in product("xyz", repeat=len(bags)):
        output = dict(zip(bags, outputs, strict=True))
        best = max(best, sum(output[tuple(sorted(s.split()))] in t for s, t in distinct.items()))
    repeated = [(source, distinct[source]) for source, _ in corpus]
    assert bag_of_words_upper_bound(*zip(*repeated, strict=True)) == best / len(distinct)
