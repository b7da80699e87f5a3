"""Sentences as trees, and their one English and one French rendering.

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
    """A determiner, at most one adjective, and a noun; ``number`` is 0 or 1.

    Before an adjective that precedes its noun, des becomes de: "de petits chats".
    """

    determiner: words.Determiner
    adjective: words.Adjective | None
    noun: words.Noun
    number: int

    def english(self) -> list[str]:
        """Return the English words."""
        adjective = [self.adjective.english] if self.adjective else []
        return [self.determiner.english[self.number], *adjective, self.noun.english[self.number]]

    def french(self) -> list[str]:
        """Return the French words."""
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
        """Grammatical gender of the noun."""
        return self.noun.feminine

    @property
    def form(self) -> int:
        """Index of the French verb form."""
        return 4 if self.number else 2


Subject = NounPhrase | words.Pronoun


@dataclass(frozen=True)
class Clause:
    """A subject and what it does or is; unused parts are None.

    ``verb`` is None in a copular clause, which has a ``predicate`` instead.
    """

    subject: Subject
    verb: words.Verb | None = None
    predicate: words.Adjective | None = None
    object: Subject | None = None
    negated: bool = False
    preposition: tuple[str, str] | None = None
    place: NounPhrase | None = None
    adverbial: tuple[str, str] | None = None

    def english(self) -> list[str]:
        """Return the English words."""
        said = [*_english_subject(self.subject), *self._english_verb()]
        if self.predicate:
            said.append(self.predicate.english)
        if isinstance(self.object, words.Pronoun):
            said.append(self.object.object[0])
        elif self.object:
            said += self.object.english()
        if self.preposition and self.place:
            said += [self.preposition[0], *self.place.english()]
        return said + (self.adverbial[0].split() if self.adverbial else [])

    def french(self) -> list[str]:
        """Return the French words."""
        core = ["ne"] if self.negated else []
        if isinstance(self.object, words.Pronoun):
            core.append(self.object.object[1])
        core.append((self.verb.french if self.verb else words.BE)[self.subject.form])
        core += ["pas"] if self.negated else []
        said = elide([*_french_subject(self.subject), *core])
        if self.predicate:
            said.append(agree(self.predicate, self.subject))
        if isinstance(self.object, NounPhrase):
            said += self.object.french()
        if self.preposition and self.place:
            said += [self.preposition[1], *self.place.french()]
        return said + (self.adverbial[1].split() if self.adverbial else [])

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
    """A greeting and whom it is for: hello my small cat."""

    addressee: NounPhrase

    def english(self) -> list[str]:
        """Return the English words."""
        return [words.GREETING[0], *self.addressee.english()]

    def french(self) -> list[str]:
        """Return the French words."""
        return [words.GREETING[1], *self.addressee.french()]


@dataclass(frozen=True)
class Sentence:
    """One or two clauses, joined by "and"."""

    parts: tuple[Clause | Greeting, ...]

    def english(self) -> str:
        """Return the English sentence."""
        return " and ".join(" ".join(part.english()) for part in self.parts)

    def french(self) -> str:
        """Return its French translation."""
        return " et ".join(" ".join(part.french()) for part in self.parts)


def agree(adjective: words.Adjective, with_: Subject) -> str:
    """Return the adjective in the gender and number of a noun phrase or pronoun."""
    return adjective.french[2 * with_.number + int(with_.feminine)]


def elide(said: list[str]) -> list[str]:
    """Shorten je, me, te, le, la and ne before a vowel: ``ne est`` is ``n' est``."""
    following = [*said[1:], ""]
    return [
        ELIDED.get(word, word) if after[:1] and after[0] in VOWELS else word
        for word, after in zip(said, following, strict=True)
    ]


def _english_subject(subject: Subject) -> list[str]:
    return subject.english() if isinstance(subject, NounPhrase) else [subject.subject[0]]


def _french_subject(subject: Subject) -> list[str]:
    return subject.french() if isinstance(subject, NounPhrase) else [subject.subject[1]]
