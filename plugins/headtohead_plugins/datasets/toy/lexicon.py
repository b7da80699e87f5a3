"""The toy lexicon: English words and the French forms they agree into.

The words are in ``lexicon.json``. They extend the vocabulary of the scratch-en-fr notebook (cat, dog, boy, girl, car,
house, big, small, happy, sad, fast, slow, good, eat, run, walk, play, read, write, go, love …). No noun starts with a
vowel, so articles never elide; verbs that do (aimer, entendre, écrire, est) make je, me, te, le, la and ne elide.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

FILE = Path(__file__).with_name("lexicon.json")
"""The words of each kind. The order counts: a seed of the generator selects words by their index."""

TABLES = json.loads(FILE.read_text(encoding="utf-8"))

Word = TypeVar("Word")


@dataclass(frozen=True)
class Noun:
    """``english`` and ``french`` hold singular and plural."""

    english: tuple[str, str]
    french: tuple[str, str]
    feminine: bool
    animate: bool


@dataclass(frozen=True)
class Adjective:
    """``french`` holds masculine and feminine singular, then masculine and feminine plural."""

    english: str
    french: tuple[str, str, str, str]
    precedes: bool = False


@dataclass(frozen=True)
class Verb:
    """``english`` holds the base and the -s form; ``french`` je, tu, il, nous, ils."""

    english: tuple[str, str]
    french: tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Determiner:
    """``french`` holds masculine and feminine singular, and plural; "" where there is none."""

    english: tuple[str, str]
    french: tuple[str, str, str]
    indefinite: bool = False


@dataclass(frozen=True)
class Pronoun:
    """A person: English and French subject, English and French object; ``number`` 0 or 1."""

    subject: tuple[str, str]
    object: tuple[str, str]
    person: int
    number: int
    feminine: bool = False

    @property
    def form(self) -> int:
        """Index of the French verb form: je, tu, il, nous, ils."""
        if self.number == 0:
            return self.person - 1
        return 3 if self.person == 1 else 4


def _words(kind: str, word_type: type[Word]) -> tuple[Word, ...]:
    """Return the words of a kind in the order of the file; their forms are tuples, so that words can be keys."""
    words = []
    for fields in TABLES[kind]:
        forms = {}
        for name, value in fields.items():
            forms[name] = tuple(value) if isinstance(value, list) else value
        words.append(word_type(**forms))
    return tuple(words)


def _translations(kind: str) -> tuple[tuple[str, str], ...]:
    """Return the English and French texts of a kind that has one form only."""
    pairs = []
    for english, french in TABLES[kind]:
        pairs.append((english, french))
    return tuple(pairs)


NOUNS = _words("nouns", Noun)
ADJECTIVES = _words("adjectives", Adjective)
TRANSITIVES = _words("transitives", Verb)
INTRANSITIVES = _words("intransitives", Verb)
DETERMINERS = _words("determiners", Determiner)
PRONOUNS = _words("pronouns", Pronoun)
ADVERBIALS = _translations("adverbials")
PREPOSITIONS = _translations("prepositions")
GO = _words("go", Verb)[0]
BE = tuple(TABLES["be"])
GREETING = _translations("greeting")[0]
