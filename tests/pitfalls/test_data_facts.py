"""Effects of pitfalls on the data, counted again in loops over the sentences."""

from __future__ import annotations

import lzma
import random
import re

import pytest

from headtohead_notebooks.notebook_pairs import EN_DE, EN_FR

UNKNOWN = "is"


def test_targets_without_a_start_are_counted(recipe, facts) -> None:
    marked, first, single_words = facts("no boundary tokens", recipe("architecture-en-de"))
    targets = [target.split() for _, target in EN_DE]
    single = [words[0] for words in targets if len(words) == 1]
    assert marked.numbers == {"targets": len(EN_DE), "targets_with_boundaries": 0}
    assert first.numbers == {"words": sum(map(len, targets)), "never_predicted": len(EN_DE)}
    assert single_words.numbers == {"one_word_targets": len(single)}
    assert all(f"'{word}'" in single_words.sentence for word in single)


def test_the_fraction_of_padding_is_counted(recipe, facts) -> None:
    (fact,) = facts("fixed padding", recipe("architecture-en-de"))
    source = sum(len(source.split()) for source, _ in EN_DE)
    predicted = sum(len(target.split()) - 1 for _, target in EN_DE)
    assert fact.numbers["source_padding"] == pytest.approx(1 - source / (100 * len(EN_DE)))
    assert fact.numbers["target_padding"] == pytest.approx(1 - predicted / (99 * len(EN_DE)))
    assert fact.numbers["source_padding_to_longest"] < 0.6
    assert "97.1 % of the encoder's computation" in fact.sentence


def test_dropped_words_are_counted(recipe, facts) -> None:
    (fact,) = facts("words dropped", recipe("scratch-en-fr"))
    hit = [source for source, _ in EN_FR if UNKNOWN in source.split()]
    assert fact.numbers == {"words": 1, "sentences": len(EN_FR), "sentences_hit": len(hit)}
    assert f"('{UNKNOWN}') is dropped without a message, in {len(hit)} of 20 sentences" in fact.sentence
    assert f"'{hit[0]}' reaches the model as 'cat small'" in fact.sentence


def test_labels_in_the_input_are_counted_on_training_tensors(recipe, variant, facts) -> None:
    (fact,) = facts("targets not shifted", recipe("by-hand-en-fr"))
    assert fact.numbers == {"tokens": 6, "labels_in_input": 6, "labels_in_input_if_shifted": 0}
    assert "at 6 of 6 target positions" in fact.sentence


def test_two_words_on_one_row_are_counted(recipe, facts) -> None:
    (fact,) = facts("one table, two vocabularies", recipe("slides-en-fr"))
    assert fact.numbers == {"rows": 5, "source_words": 5, "target_words": 5, "rows_with_two_words": 3}
    assert "'love = adore'" in fact.sentence


def test_test_sentences_in_the_training_set_are_counted(recipe, variant, facts) -> None:
    (own,) = facts("nothing held out", recipe("scratch-en-fr"))
    held, *_ = facts("nothing held out", variant(data={"split": "grouped", "test": 10}))
    assert own.numbers == {"test": 20, "trained_on": 20}
    assert held.numbers == {"test": 10, "trained_on": 0}


@pytest.fixture(scope="module")
def rows(spanish) -> list[list[str]]:
    with lzma.open(spanish, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n").split("\t") for line in file]


@pytest.fixture(scope="module")
def tatoeba(recipe, spanish):
    return recipe("tatoeba-en-es", f"data.file={spanish}")


@pytest.mark.slow
def test_the_leak_of_a_split_by_rows_equals_a_plain_count(tatoeba, rows, facts) -> None:
    seen, leak = facts("nothing held out", tatoeba)
    assert seen.numbers == {"test": len(rows), "trained_on": len(rows)}
    english = [" ".join(re.findall("[a-z]+", row[0].lower())) for row in rows]
    tenth, shares = len(english) // 10, []
    for seed in range(1, 6):
        random.Random(seed).shuffle(english)
        known = set(english[tenth:])
        shares.append(sum(text in known for text in english[:tenth]) / tenth)
    share = sum(shares) / len(shares)
    assert share == pytest.approx(0.236, abs=0.005)
    assert leak.numbers["leak_of_row_split"] == pytest.approx(share, abs=0.005)


@pytest.mark.slow
def test_rows_with_lost_letters_are_counted(tatoeba, rows, facts) -> None:
    (fact,) = facts("letters lost", tatoeba)
    spanish = sum(any(letter in row[1] for letter in "ñÑüÜ") for row in rows)
    assert spanish == 6468
    assert fact.numbers["rows"] == len(rows) == 123376
    assert spanish <= fact.numbers["rows_hit"] <= spanish + 30
    assert "'Enséñamelo.' becomes 'ense amelo'" in fact.sentence
