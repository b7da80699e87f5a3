"""Normalisations: the characters that each keeps, folds, removes or replaces by spaces."""

import re
import unicodedata

import pytest
from hypothesis import given

from headtohead.data.normalise import NORMALISERS, ascii_fold, unicode_words
from made.texts import CHARACTERS, random_texts

CASES = {
    "¿Dónde está el cumpleaños?": "dónde está el cumpleaños",
    "It's 5 o'clock 'now'.": "it's 5 o'clock now",
    "J’aime l’eau… n'est-ce pas ?": "j'aime l'eau n'est ce pas",
    "Bonjour\u202f!\u00a0Ça va\u200b?": "bonjour ça va",
    "soft\u00adhyphen\ufeff": "softhyphen",
    "e\u0301te\u0301": "été",
    "Tôi phải đi ngủ.": "tôi phải đi ngủ",
    "Привет, мир!": "привет мир",
    "नमस्ते दुनिया।": "नमस्ते दुनिया",
    "می\u200cخواهم": "می\u200cخواهم",
    "Straße ŒUVRE": "straße œuvre",
    "snake_case 3.14 50%": "snake case 3 14 50",
    "''": "",
    "I ❤\ufe0f it \u2708\ufe0f": "i it",
}


@pytest.mark.parametrize("raw", CASES)
def test_unicode_keeps_letters_of_every_script_and_drops_other_characters(raw: str) -> None:
    assert unicode_words(raw) == CASES[raw]


def notebook_fold(text: str) -> str:
    """Fold letter by letter, with runs of one accented vowel counting once."""
    folded, previous = "", ""
    for letter in text.lower():
        plain = dict(zip("áéíóú", "aeiou", strict=True)).get(letter)
        if plain is None or letter != previous:
            folded += plain or (letter if "a" <= letter <= "z" else " ")
        previous = letter
    return " ".join(folded.split())


VOWELS = "áéíóúÁÉñü aAzZ'\"¿?1ß\u0301İ"
"""Characters that the folding of the notebook changes, and some that it could change."""


@given(random_texts(VOWELS * 500 + CHARACTERS))
def test_ascii_fold_is_that_of_the_notebook(text: str) -> None:
    assert ascii_fold(text) == notebook_fold(text)


@pytest.mark.parametrize("name", NORMALISERS)
@given(text=random_texts())
def test_normalising_twice_changes_nothing(name: str, text: str) -> None:
    once = NORMALISERS[name](text)
    assert NORMALISERS[name](once) == once


@given(random_texts())
def test_unicode_leaves_single_spaces_and_no_punctuation(text: str) -> None:
    result = unicode_words(text)
    assert result == result.strip()
    assert not re.search(r"\s\s", result)
    categories = {
        unicodedata.category(letter)[0] for letter in result if letter not in " '\u200c\u200d"
    }
    assert categories <= set("LMN")
