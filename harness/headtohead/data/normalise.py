"""Normalisations: raw text to words separated by single spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

Normaliser = Callable[[str], str]


def keep(text: str) -> str:
    """Replace runs of white space by one space and change nothing else."""
    return " ".join(text.split())


def unicode_words(text: str) -> str:
    """Convert to lower case; keep letters, marks and digits of every script.

    All other characters become a space: punctuation, symbols, every kind of space, the zero-width
    space. Apostrophes inside words stay (typographic apostrophes become ``'``), and so do the
    joiners that some scripts need inside words. Soft hyphens, byte order marks and variation
    selectors are removed.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    stripped = (word.strip(_IN_WORDS) for word in text.translate(_CHARACTERS).split())
    return " ".join(word for word in stripped if word)


def ascii_fold(text: str) -> str:
    """Convert to lower case, fold á é í ó ú, and replace everything outside a-z by spaces.

    The tatoeba-en-es notebook does the same: ñ and ü become spaces, and a run of one accented vowel
    becomes one letter.
    """
    folded = _ACCENTED.sub(lambda run: _PLAIN[run[0][0]], text.lower())
    return _OUTSIDE_A_Z.sub(" ", folded).strip()


NORMALISERS: dict[str, Normaliser] = {
    "none": keep,
    "unicode": unicode_words,
    "ascii-fold": ascii_fold,
}
"""The normalisations by the name in ``data.normalise``."""


def appearance(text: str) -> str:
    """Return a text as a reader sees it: composed characters, without invisible ones.

    Sentences with the same appearance belong to the same group, although they can have other tokens.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text).translate(_INVISIBLE)


def removes(normalise: Normaliser, character: str) -> bool:
    """Return whether a normalisation removes a character inside a word, or replaces it by a space."""
    return not character.isspace() and normalise(f"a{character}a") in ("aa", "a a")


_IN_WORDS = "'\u200c\u200d"
_APOSTROPHES = "'’ʼ＇"
_REMOVED = "\u00ad\ufeff\u2060" + "".join(map(chr, range(0xFE00, 0xFE10)))
"""Soft hyphen, byte order mark, word joiner, and selectors of the variant of the character before."""
_INVISIBLE = dict.fromkeys(map(ord, _REMOVED + "\u200b\u200c\u200d\u200e\u200f"))
"""Also zero-width spaces and joiners, and marks of the direction of writing."""
_PLAIN = dict(zip("áéíóú", "aeiou", strict=True))
_ACCENTED = re.compile("á+|é+|í+|ó+|ú+")
_OUTSIDE_A_Z = re.compile("[^a-z]+")


class _Characters(dict[int, str]):
    """A table for ``str.translate`` that computes each entry when the character first occurs."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in _APOSTROPHES:
            replacement = "'"
        elif character in _REMOVED:
            replacement = ""
        elif character in _IN_WORDS or unicodedata.category(character)[0] in "LMN":
            replacement = character
        else:
            replacement = " "
        self[code] = replacement
        return replacement


_CHARACTERS = _Characters()
