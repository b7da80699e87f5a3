"""Effects of pitfalls on the data, counted again in loops over the sentences."""

import lzma
import random
import re

import pytest

from headtohead_notebooks.notebook_pairs import EN_DE, EN_FR


def test_targets_without_a_start_are_counted(recipe) -> None:
    targets = [target.split() for _, target in EN_DE]
    assert recipe("no boundary tokens", "architecture-en-de") == {
        "targets": len(EN_DE),
        "targets_with_boundaries": 0,
        "words": sum(map(len, targets)),
        "never_predicted": len(EN_DE),
        "one_word_targets": sum(len(words) == 1 for words in targets),
    }


def test_the_fraction_of_padding_is_counted(recipe) -> None:
    measured = recipe("fixed padding", "architecture-en-de")
    source = sum(len(source.split()) for source, _ in EN_DE)
    predicted = sum(len(target.split()) - 1 for _, target in EN_DE)
    assert measured["source_padding"] == pytest.approx(1 - source / (100 * len(EN_DE)))
    assert measured["target_padding"] == pytest.approx(1 - predicted / (99 * len(EN_DE)))
    assert measured["source_padding_to_longest"] < 0.6


def test_dropped_words_labels_and_shared_rows_are_counted(recipe) -> None:
    hit = sum("is" in source.split() for source, _ in EN_FR)
    assert recipe("words dropped", "scratch-en-fr") == {
        "words": 1,
        "sentences": len(EN_FR),
        "sentences_hit": hit,
    }
    assert recipe("targets not shifted", "by-hand-en-fr") == {
        "tokens": 6,
        "labels_in_input": 6,
        "labels_in_input_if_shifted": 0,
    }
    assert recipe("one table, two vocabularies", "slides-en-fr") == {
        "rows": 5,
        "rows_with_two_words": 3,
    }


def test_test_sentences_in_the_training_set_are_counted(recipe, variant) -> None:
    own = recipe("nothing held out", "scratch-en-fr")
    held = variant("nothing held out", data={"split": "grouped", "test": 10})
    assert (own["test"], own["trained_on"]) == (20, 20)
    assert (held["test"], held["trained_on"]) == (10, 0)


@pytest.fixture(scope="module")
def rows(spanish) -> list[list[str]]:
    with lzma.open(spanish, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n").split("\t") for line in file]


@pytest.mark.slow
def test_the_leak_of_a_split_by_rows_equals_a_plain_count(recipe, spanish, rows) -> None:
    measured = recipe("nothing held out", "tatoeba-en-es", f"data.file={spanish}")
    assert (measured["test"], measured["trained_on"]) == (len(rows), len(rows))
    english = [" ".join(re.findall("[a-z]+", row[0].lower())) for row in rows]
    tenth, shares = len(english) // 10, []
    for seed in range(1, 6):
        random.Random(seed).shuffle(english)
        known = set(english[tenth:])
        shares.append(sum(text in known for text in english[:tenth]) / tenth)
    share = sum(shares) / len(shares)
    assert share == pytest.approx(0.236, abs=0.005)
    assert measured["leak_of_row_split"] == pytest.approx(share, abs=0.005)


@pytest.mark.slow
def test_rows_with_lost_letters_are_counted(recipe, spanish, rows) -> None:
    measured = recipe("letters lost", "tatoeba-en-es", f"data.file={spanish}")
    spanish_rows = sum(any(letter in row[1] for letter in "ñÑüÜ") for row in rows)
    assert spanish_rows == 6468
    assert measured["rows"] == len(rows) == 123376
    assert spanish_rows <= measured["rows_hit"] <= spanish_rows + 30
