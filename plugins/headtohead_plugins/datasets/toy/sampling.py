"""Drawing toy sentences, each with some of its siblings: the same words in another order.

``numpy.random.RandomState`` is used because its streams are frozen: the same seed draws the same
sentences under every version of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any, TypeVar

import numpy as np

from headtohead_plugins.datasets.toy import lexicon as words
from headtohead_plugins.datasets.toy.grammar import Clause, Greeting, NounPhrase, Sentence, Subject

SHORTEST, LONGEST = 3, 14
PLACES = ("subject", "object", "place")
FAMILY = (2, 3, 4)
FAMILY_WEIGHTS = (0.1, 0.2, 0.7)

Item = TypeVar("Item")
Random = np.random.RandomState


def families(seed: int) -> Iterator[list[Sentence]]:
    """Yield lists of sentences for ever; those of a list are permutations of each other."""
    random = Random(seed)
    while True:
        sentence = draw_sentence(random)
        if SHORTEST <= len(sentence.english().split()) <= LONGEST:
            others = [other for other in siblings(sentence) if other != sentence]
            wanted = int(random.choice(FAMILY, p=FAMILY_WEIGHTS))
            order = random.permutation(len(others))[: wanted - 1]
            yield [sentence, *(others[index] for index in order)]


def siblings(sentence: Sentence) -> list[Sentence]:
    """Return every way to redistribute animate nouns, determiners and adjectives over a sentence.

    The bag of English words stays the same: nouns and determiners keep their number.
    """
    slots = _Slots(sentence)
    orders = product(_same_number(slots.nouns), _same_number(slots.determiners), permutations(slots.adjectives))
    filled = (slots.fill(*order) for order in orders)
    return list(dict.fromkeys(other for other in filled if _natural(other)))


def draw_sentence(random: Random) -> Sentence:
    """Draw one sentence; about one in eight has two clauses."""
    if random.random_sample() < 0.12:
        return Sentence((_short_clause(random), _short_clause(random)))
    kinds: Sequence[tuple[float, Callable[[Random], Clause | Greeting]]] = (
        (0.58, _transitive),
        (0.17, _intransitive),
        (0.07, _going),
        (0.15, _copular),
        (0.03, _greeting),
    )
    weights = [weight for weight, _ in kinds]
    kind = kinds[int(random.choice(len(kinds), p=weights))][1]
    return Sentence((kind(random),))


class _Slots:
    """The places of a sentence whose words can change places, from left to right."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        found = [phrase for part in sentence.parts for phrase in _phrases(part)]
        self.nouns = [(one.noun, one.number) for one in found if one.noun.animate]
        self.determiners = [(one.determiner, one.number) for one in found]
        self.adjectives = [adjective for part in sentence.parts for adjective in _adjectives(part)]

    def fill(
        self,
        nouns: Sequence[words.Noun],
        determiners: Sequence[words.Determiner],
        adjectives: Sequence[words.Adjective],
    ) -> Sentence:
        """Return the sentence with other words in its slots."""
        noun, determiner, adjective = iter(nouns), iter(determiners), iter(adjectives)

        def phrase(old: NounPhrase) -> NounPhrase:
            return NounPhrase(
                next(determiner),
                next(adjective) if old.adjective else None,
                next(noun) if old.noun.animate else old.noun,
                old.number,
            )

        def part(old: Clause | Greeting) -> Clause | Greeting:
            if isinstance(old, Greeting):
                return Greeting(phrase(old.addressee))
            changed: dict[str, Any] = {
                name: phrase(held) for name in PLACES if isinstance(held := getattr(old, name), NounPhrase)
            }
            predicate = next(adjective) if old.predicate else None
            return replace(old, **changed, predicate=predicate)

        return Sentence(tuple(part(old) for old in self.sentence.parts))


def _same_number(slots: Sequence[tuple[Item, int]]) -> Iterator[tuple[Item, ...]]:
    """Yield the orders of the items in which each slot keeps its number."""
    for order in permutations(slots):
        if all(new[1] == old[1] for new, old in zip(order, slots, strict=True)):
            yield tuple(item for item, _ in order)


def _natural(sentence: Sentence) -> bool:
    """Whether no negated verb has an indefinite object, which French would put differently."""
    return not any(
        isinstance(part, Clause)
        and part.negated
        and isinstance(part.object, NounPhrase)
        and part.object.determiner.indefinite
        for part in sentence.parts
    )


def _adjectives(part: Clause | Greeting) -> list[words.Adjective]:
    found = [phrase.adjective for phrase in _phrases(part)]
    if isinstance(part, Clause):
        found.append(part.predicate)
    return [adjective for adjective in found if adjective]


def _phrases(part: Clause | Greeting) -> list[NounPhrase]:
    if isinstance(part, Greeting):
        return [part.addressee]
    held = (getattr(part, name) for name in PLACES)
    return [phrase for phrase in held if isinstance(phrase, NounPhrase)]


def _one(random: Random, items: Sequence[Item]) -> Item:
    return items[random.randint(len(items))]


def _maybe(random: Random, chance: float, items: Sequence[Item]) -> Item | None:
    return _one(random, items) if random.random_sample() < chance else None


def _noun_phrase(
    random: Random, *, animate: bool, adjective: float = 0.4, number: int | None = None, definite: bool = False
) -> NounPhrase:
    nouns = [noun for noun in words.NOUNS if noun.animate or not animate]
    determiners = [one for one in words.DETERMINERS if not (definite and one.indefinite)]
    return NounPhrase(
        _one(random, determiners),
        _maybe(random, adjective, words.ADJECTIVES),
        _one(random, nouns),
        random.randint(2) if number is None else number,
    )


def _subject(random: Random, pronoun: float, *, adjective: float = 0.4) -> Subject:
    if random.random_sample() < pronoun:
        return _pronoun(random)
    return _noun_phrase(random, animate=True, adjective=adjective)


def _pronoun(random: Random) -> words.Pronoun:
    """I, you and we three times as often as others: nothing else shares their verb forms."""
    return _one(random, [one for one in words.PRONOUNS for _ in range(1 if one.person == 3 else 3)])


def _negated(random: Random) -> bool:
    return bool(random.random_sample() < 0.3)


def _transitive(random: Random) -> Clause:
    """Half of all objects have the subject's number, so that the two can change places."""
    subject, negated = _subject(random, 0.2), _negated(random)
    return Clause(
        subject,
        verb=_one(random, words.TRANSITIVES),
        object=_object(random, subject, negated),
        negated=negated,
        adverbial=_maybe(random, 0.1, words.ADVERBIALS),
    )


def _object(random: Random, subject: Subject, negated: bool) -> Subject:
    if random.random_sample() < 0.18:
        person = subject.person if isinstance(subject, words.Pronoun) else 3
        return _one(random, [one for one in words.PRONOUNS if person == 3 or one.person != person])
    number = subject.number if random.random_sample() < 0.75 else None
    return _noun_phrase(random, animate=random.random_sample() < 0.75, number=number, definite=negated)


def _intransitive(random: Random) -> Clause:
    return Clause(
        _subject(random, 0.7),
        adverbial=_one(random, words.ADVERBIALS),
        verb=_one(random, words.INTRANSITIVES),
        negated=_negated(random),
    )


def _going(random: Random) -> Clause:
    """To go, or another verb, with or behind somebody or something."""
    preposition = _one(random, words.PREPOSITIONS)
    return Clause(
        _subject(random, 0.6),
        verb=words.GO if random.random_sample() < 0.6 else _one(random, words.INTRANSITIVES),
        preposition=preposition,
        place=_noun_phrase(random, animate=preposition[0] == "with", definite=True),
        negated=_negated(random),
    )


def _copular(random: Random) -> Clause:
    subject: Subject = _noun_phrase(random, animate=False)
    if random.random_sample() < 0.4:
        subject = _pronoun(random)
    return Clause(subject, predicate=_one(random, words.ADJECTIVES), negated=_negated(random))


def _greeting(random: Random) -> Greeting:
    return Greeting(_noun_phrase(random, animate=True, definite=True, adjective=0.6))


def _short_clause(random: Random) -> Clause:
    """A clause for one side of "and"."""
    subject = _subject(random, 0.3, adjective=0.3)
    negated = bool(random.random_sample() < 0.2)
    kind = random.random_sample()
    if kind < 0.4:
        return Clause(subject, verb=_one(random, words.INTRANSITIVES), negated=negated)
    if kind < 0.7:
        return Clause(subject, predicate=_one(random, words.ADJECTIVES), negated=negated)
    verb = _one(random, words.TRANSITIVES)
    return Clause(subject, verb=verb, object=_object(random, subject, negated), negated=negated)
