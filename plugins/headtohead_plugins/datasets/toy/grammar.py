"""Sentences as trees, with one English and one French text each.

English order is subject, verb, object. French puts most adjectives after the noun, object pronouns
before the verb and ne … pas around it; articles, adjectives and verbs agree. "you" is tu, "they"
is ils, and the first two persons are masculine, so that every sentence has one translation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from headtohead_plugins.datasets.toy import lexicon as words

VOWELS = tuple("aeiouéèê")
ELIDED = {"je": "j'", "me": "m'", "te": "t'", "le": "l'", "la": "l'", "ne": "n'"}


@dataclass(frozen=True)
class NounPhrase:
    """A determiner, at most one adjective, and a noun; ``number`` is 0 (singular) or 1 (plural).

    Before an adjective that precedes its noun, des becomes de: "de petits chats".
    """

    determiner: words.Determiner
    adjective: words.Adjective | None
    noun: words.Noun
    number: int

    def english(self) -> list[str]:
        determiner = self.determiner.english[self.number]
        noun = self.noun.english[self.number]
        if self.adjective is None:
            return [determiner, noun]
        return [determiner, self.adjective.english, noun]

    def french(self) -> list[str]:
        form = 2 if self.number else int(self.noun.feminine)
        article = self.determiner.french[form]
        noun = self.noun.french[self.number]
        if self.adjective is None:
            return [article, noun]
        adjective = agree(self.adjective, self)
        if not self.adjective.precedes:
            return [article, noun, adjective]
        if article == "des":
            article = "de"
        return [article, adjective, noun]

    @property
    def feminine(self) -> bool:
        return self.noun.feminine

    @property
    def form(self) -> int:
        """Index of the French verb form."""
        return 4 if self.number else 2


Subject = NounPhrase | words.Pronoun


@dataclass(frozen=True)
class Clause:
    """A subject with a verb or a predicate; unused parts are None.

    A copular clause has a ``predicate`` and no ``verb``.
    """

    subject: Subject
    verb: words.Verb | None = None
    predicate: words.Adjective | None = None
    object: Subject | None = None
    negated: bool = False
    preposition: tuple[str, str] | None = None
    complement: NounPhrase | None = None
    adverbial: tuple[str, str] | None = None

    def english(self) -> list[str]:
        english = [*_english_subject(self.subject), *self._english_verb()]
        if self.predicate:
            english.append(self.predicate.english)
        if isinstance(self.object, words.Pronoun):
            english.append(self.object.object[0])
        elif self.object:
            english += self.object.english()
        if self.preposition and self.complement:
            english += [self.preposition[0], *self.complement.english()]
        if self.adverbial:
            english += self.adverbial[0].split()
        return english

    def french(self) -> list[str]:
        core = _french_subject(self.subject)
        if self.negated:
            core.append("ne")
        if isinstance(self.object, words.Pronoun):
            core.append(self.object.object[1])
        verb_forms = self.verb.french if self.verb else words.BE
        core.append(verb_forms[self.subject.form])
        if self.negated:
            core.append("pas")
        french = elide(core)
        if self.predicate:
            french.append(agree(self.predicate, self.subject))
        if isinstance(self.object, NounPhrase):
            french += self.object.french()
        if self.preposition and self.complement:
            french += [self.preposition[1], *self.complement.french()]
        if self.adverbial:
            french += self.adverbial[1].split()
        return french

    def _english_verb(self) -> list[str]:
        """Return the words of the verb, or of "be", with "not" if the clause is negated."""
        is_third = self.subject.form == 2  # third person singular
        if self.verb is None:
            auxiliary = self._english_be()
            return [auxiliary, "not"] if self.negated else [auxiliary]
        if self.negated:
            auxiliary = "does" if is_third else "do"
            return [auxiliary, "not", self.verb.english[0]]
        return [self.verb.english[is_third]]

    def _english_be(self) -> str:
        if self.subject.form == 2:
            return "is"
        if self.subject.form == 0:
            return "am"
        return "are"


@dataclass(frozen=True)
class Greeting:
    """A greeting with its addressee: hello my small cat."""

    addressee: NounPhrase

    def english(self) -> list[str]:
        return [words.GREETING[0], *self.addressee.english()]

    def french(self) -> list[str]:
        return [words.GREETING[1], *self.addressee.french()]


@dataclass(frozen=True)
class Sentence:
    """One or two clauses, joined by "and"."""

    parts: tuple[Clause | Greeting, ...]

    def english(self) -> str:
        return " and ".join(" ".join(part.english()) for part in self.parts)

    def french(self) -> str:
        return " et ".join(" ".join(part.french()) for part in self.parts)


def agree(adjective: words.Adjective, with_: Subject) -> str:
    """Return the adjective in the gender and number of a noun phrase or pronoun."""
    return adjective.french[2 * with_.number + int(with_.feminine)]


def elide(french: list[str]) -> list[str]:
    """Shorten je, me, te, le, la and ne before a vowel: ``ne est`` becomes ``n' est``."""
    elided = []
    for word, following in pairwise([*french, ""]):
        if following.startswith(VOWELS):
            word = ELIDED.get(word, word)
        elided.append(word)
    return elided


def _english_subject(subject: Subject) -> list[str]:
    if isinstance(subject, NounPhrase):
        return subject.english()
    return [subject.subject[0]]


def _french_subject(subject: Subject) -> list[str]:
    if isinstance(subject, NounPhrase):
        return subject.french()
    return [subject.subject[1]]
