"""Sentences as trees, with one English and one French text each.

English order is subject, verb, object. French puts most adjectives after the noun, object pronouns
before the verb and ne … pas around it; articles, adjectives and verbs agree. "you" is tu, "they"
is ils, and the first two persons are masculine, so that every sentence has one translation.
"""

from __future__ import annotations

from dataclasses import dataclass

from headtohead_plugins.datasets.toy import lexicon as words

VOWELS = "aeiouéèê"
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
        adjective = [self.adjective.english] if self.adjective else []
        return [self.determiner.english[self.number], *adjective, self.noun.english[self.number]]

    def french(self) -> list[str]:
        gender = 2 if self.number else int(self.noun.feminine)
        article, noun = self.determiner.french[gender], self.noun.french[self.number]
        if self.adjective is None:
            return [article, noun]
        adjective = agree(self.adjective, self)
        if self.adjective.precedes:
            return ["de" if article == "des" else article, adjective, noun]
        return [article, noun, adjective]

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
        return english + (self.adverbial[0].split() if self.adverbial else [])

    def french(self) -> list[str]:
        core = ["ne"] if self.negated else []
        if isinstance(self.object, words.Pronoun):
            core.append(self.object.object[1])
        core.append((self.verb.french if self.verb else words.BE)[self.subject.form])
        core += ["pas"] if self.negated else []
        french = elide([*_french_subject(self.subject), *core])
        if self.predicate:
            french.append(agree(self.predicate, self.subject))
        if isinstance(self.object, NounPhrase):
            french += self.object.french()
        if self.preposition and self.complement:
            french += [self.preposition[1], *self.complement.french()]
        return french + (self.adverbial[1].split() if self.adverbial else [])

    def _english_verb(self) -> list[str]:
        third = self.subject.form == 2
        if self.verb is None:
            first = isinstance(self.subject, words.Pronoun) and self.subject.form == 0
            be = "is" if third else "am" if first else "are"
            return [be, "not"] if self.negated else [be]
        if self.negated:
            return ["does" if third else "do", "not", self.verb.english[0]]
        return [self.verb.english[third]]


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
    following = [*french[1:], ""]
    return [
        ELIDED.get(word, word) if after[:1] and after[0] in VOWELS else word
        for word, after in zip(french, following, strict=True)
    ]


def _english_subject(subject: Subject) -> list[str]:
    return subject.english() if isinstance(subject, NounPhrase) else [subject.subject[0]]


def _french_subject(subject: Subject) -> list[str]:
    return subject.french() if isinstance(subject, NounPhrase) else [subject.subject[1]]
