"""Vocabularies: order, size limits, special tokens and decoding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import EOS, PAD, SOS, SPECIALS, UNK, Vocabulary
from headtohead.data.wordlists import count_words
from headtohead.schema.run_config import VocabularyConfig

WORDS = st.lists(st.text(alphabet="abcé'ñ", min_size=1), min_size=1)


def test_words_are_ordered_by_frequency_then_alphabetically() -> None:
    vocabulary = count_words([["b", "z", "c"], ["c", "é", "a"], ["c", "b"]], VocabularyConfig())
    assert vocabulary.words == [*SPECIALS, "c", "b", "a", "z", "é"]
    assert (PAD, UNK, SOS, EOS) == (0, 1, 2, 3)


def test_rare_words_and_those_beyond_the_size_are_unknown() -> None:
    sentences = [["a"] * 3, ["b"] * 2, ["c"]]
    assert count_words(sentences, VocabularyConfig(min_count=2)).words[4:] == ["a", "b"]
    small = count_words(sentences, VocabularyConfig(max_size=5))
    assert len(small) == 5
    assert small.encode(["a", "b", "z"]) == [4, UNK, UNK]


def test_special_tokens_in_a_text_are_ordinary_unknown_words() -> None:
    vocabulary = count_words([["a", "<eos>", "<pad>"]], VocabularyConfig())
    assert vocabulary.words == [*SPECIALS, "a"]
    assert vocabulary.encode(["<eos>", "a"]) == [UNK, 4]


@given(WORDS, WORDS)
def test_decoding_stops_at_the_end_and_drops_boundaries(words: list[str], more: list[str]) -> None:
    vocabulary = count_words([words, more], VocabularyConfig())
    ids = [SOS, *vocabulary.encode(words), EOS, *vocabulary.encode(more), PAD]
    assert vocabulary.decode(ids) == " ".join(words)
    assert vocabulary.decode(ids, until_eos=False) == " ".join([*words, *more])


def test_pieces_are_joined_into_words() -> None:
    vocabulary = Vocabulary([*SPECIALS, "▁un", "hap", "py", "▁"], pieces=True)
    assert vocabulary.decode([SOS, 4, 5, 6, 7, 6, EOS]) == "unhappy py"
