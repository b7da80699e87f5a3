"""Three ways to turn raw text into words separated by single spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from headtohead.errors import HeadToHeadError, nearest

Normaliser = Callable[[str], str]


def keep(text: str) -> str:
    """Keep everything; runs of white space become one space."""
    return " ".join(text.split())


def unicode_words(text: str) -> str:
    """Lower-case, and keep letters, marks and digits of every script.

    Everything else becomes a space: punctuation, symbols, every kind of space, the zero-width
    space. An apostrophe inside a word stays (typographic ones become the plain one), joiners that
    scripts need inside words stay, soft hyphens and byte order marks vanish.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    stripped = (word.strip(_IN_WORDS) for word in text.translate(_CHARACTERS).split())
    return " ".join(word for word in stripped if word)


def ascii_fold(text: str) -> str:
    """Lower-case, fold á é í ó ú, and turn everything outside a-z into spaces.

    This is what the tatoeba-en-es notebook does; ñ and ü become spaces with it.
    """
    folded = _ACCENTED.sub(lambda run: _PLAIN[run[0][0]], text.lower())
    return _OUTSIDE_A_Z.sub(" ", folded).strip()


NORMALISERS: dict[str, Normaliser] = {"none": keep, "unicode": unicode_words, "ascii-fold": ascii_fold}


def normaliser(name: str) -> Normaliser:
    """Return the function of that name.

    Raises:
        HeadToHeadError: If there is none, with the nearest name.
    """
    if name not in NORMALISERS:
        raise HeadToHeadError(f"unknown normalisation '{name}'{nearest(name, NORMALISERS)}")
    return NORMALISERS[name]


_IN_WORDS = "'\u200c\u200d"
_APOSTROPHES = "'’ʼ＇"
_VANISHING = "\u00ad\ufeff\u2060"
_PLAIN = dict(zip("áéíóú", "aeiou", strict=True))
_ACCENTED = re.compile("á+|é+|í+|ó+|ú+")
_OUTSIDE_A_Z = re.compile("[^a-z]+")


class _Characters(dict[int, str]):
    """A table for ``str.translate`` that decides each character the first time it is met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in _APOSTROPHES:
            chosen = "'"
        elif character in _VANISHING:
            chosen = ""
        elif character in _IN_WORDS or unicodedata.category(character)[0] in "LMN":
            chosen = character
        else:
            chosen = " "
        self[code] = chosen
        return chosen


_CHARACTERS = _Characters()
