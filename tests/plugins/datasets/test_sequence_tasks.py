"""Sequences with labels: labels computed independently, the definition of each task, disjoint parts."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from headtohead_plugins.datasets.mqar import MultiQueryRecall, Options


def recalled(words):
    """Return the label of every word: the value of a key that occurred with one, at even distances."""
    values, labels = {}, {}
    for place, word in enumerate(words):
        if place % 2 == 0 and word in values and place >= 2 * len(values):
            labels[place] = values[word]
        elif place % 2 == 0 and place == 2 * len(values) and word[0] == "k":
            values[word] = words[place + 1]
    return labels


def test_mqar_labels_are_the_values_of_repeated_keys(read):
    levels = ["16x2", "64x4", "64x16"]
    found = read("mqar", size=300, alphabet=200, levels=levels).pairs
    sizes = Counter()
    for pair in found:
        words, labels = pair.source.split(), pair.target.split()
        pairs = len(labels)
        sizes[f"{len(words)}x{pairs}"] += 1
        keys, values = words[0 : 2 * pairs : 2], words[1 : 2 * pairs : 2]
        assert len({*keys}) == len({*values}) == pairs
        assert all(key[0] == "k" for key in keys)
        assert all(value[0] == "v" for value in values)
        assert list(pair.labelled) == sorted({*pair.labelled})
        assert min(pair.labelled) >= 2 * pairs
        assert all(place % 2 == 0 for place in pair.labelled)
        # Each key is queried once.
        assert sorted(words[place] for place in pair.labelled) == sorted(keys)
        for place, label in zip(pair.labelled, labels, strict=True):
            assert label == values[keys.index(words[place])]
    assert sizes == dict.fromkeys(levels, 100)


def test_mqar_without_random_tokens_has_no_other_keys_than_queries(read):
    for pair in read(
        "mqar", size=100, alphabet=200, levels=["64x4"], random_non_queries=False
    ).pairs:
        words = pair.source.split()
        assert {
            place: word for place, word in enumerate(words) if place >= 8 and word != "none"
        } == {place: words[place] for place in pair.labelled}
        assert recalled(words) == dict(zip(pair.labelled, pair.target.split(), strict=True))


def test_mqar_distances_follow_the_power_law(read):
    places = Counter()
    for pair in read("mqar", size=1500, alphabet=200, levels=["64x1"]).pairs:
        places[(pair.labelled[0] - 2) // 2] += 1
    weights = np.arange(1, 32, dtype=float) ** (0.01 - 1)
    expected = 1500 * weights / weights.sum()
    assert (
        sum((places[place] - expected[place]) ** 2 / expected[place] for place in range(31)) < 60
    )  # chi², 30 degrees
    uniform = Counter(
        (pair.labelled[0] - 2) // 2
        for pair in read("mqar", size=1500, levels=["64x1"], power_a=1).pairs
    )
    assert sum((uniform[place] - 1500 / 31) ** 2 / (1500 / 31) for place in range(31)) < 60


@pytest.mark.slow
def test_mqar_tests_on_other_levels_and_original_is_that_of_the_code(prepared):
    data = prepared(
        "mqar",
        split="length",
        options={"size": 100, "levels": ["64x4"], "test_levels": ["64x8", "128x32"]},
    )
    sizes = {
        part: Counter(len(split.split()) for split in own.target_text)
        for part, own in data.splits.items()
    }
    assert sizes == {"train": {4: 95}, "valid": {4: 5}, "test": {8: 50, 32: 50}}
    assert data.record["leak"] == 0
    named = Options(levels=("original",), test_levels=("original",))
    assert len(named.lengths()) == 5
    assert named.lengths("test")[-1] == "1024x256"
    for is_random in (True, False):
        task = MultiQueryRecall.task(Options(alphabet=4, random_non_queries=is_random), "iid")
        random = np.random.RandomState(1)
        assert len({task.draw(random, "6x1").key for _ in range(9000)}) == task.capacity("6x1")


def test_induction_repeats_what_followed_the_special_token(read):
    for pair in read("induction", "length", size=300, test_lengths=[8, 40], test_each=10).pairs:
        *before, last = pair.source.split()
        assert last == "!"
        assert before.count("!") == 1
        following = (after for token, after in pairwise([*before, last]) if token == "!")
        assert (pair.labelled, pair.target) == ((len(before),), next(following))


def test_selective_copy_answers_with_the_data_in_order(read):
    for pair in read("selective-copy", "length", size=300, data_tokens=5, test_each=10).pairs:
        sequence, answers = pair.source.split(" >", 1)
        assert len(answers.split()) == 4
        words = pair.source.split()
        assert [place for place, word in enumerate(words) if word == ">"] == list(pair.labelled)
        assert pair.target == " ".join(sequence.replace(".", "").split())
        assert len(pair.target.split()) == 5


def test_test_lengths_are_those_of_the_option(prepared):
    options = {"size": 400, "shortest": 5, "longest": 8, "test_lengths": [3, 12], "test_each": 20}
    data = prepared("reverse", split="length", options=options)
    lengths = {
        part: Counter(len(text.split()) for text in own.source_text)
        for part, own in data.splits.items()
    }
    assert lengths["test"] == dict.fromkeys(range(3, 13), 20)
    assert {*lengths["train"]} == {5, 6, 7, 8}
    assert data.record["leak"] == 0
