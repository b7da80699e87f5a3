"""Random toy sentences, each with some of its siblings: the same English words in another order.

``numpy.random.RandomState`` is used because its streams are frozen: a seed generates the same
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
PHRASES = ("subject", "object", "complement")
"""Parts of a clause that can be noun phrases, from left to right."""
FAMILY = (2, 3, 4)
FAMILY_WEIGHTS = (0.1, 0.2, 0.7)

Item = TypeVar("Item")
Random = np.random.RandomState


def families(seed: int) -> Iterator[list[Sentence]]:
    """Yield endlessly lists of sentences that are permutations of each other."""
    random = Random(seed)
    while True:
        sentence = draw_sentence(random)
        if SHORTEST <= len(sentence.english().split()) <= LONGEST:
            others = [other for other in siblings(sentence) if other != sentence]
            size = int(random.choice(FAMILY, p=FAMILY_WEIGHTS))
            order = random.permutation(len(others))[: size - 1]
            yield [sentence, *(others[index] for index in order)]


def siblings(sentence: Sentence) -> list[Sentence]:
    """Return all redistributions of animate nouns, determiners and adjectives over a sentence.

    All have the same bag of English words: nouns and determiners keep their number.
    """
    phrases = [phrase for part in sentence.parts for phrase in _phrases(part)]
    nouns = [(phrase.noun, phrase.number) for phrase in phrases if phrase.noun.animate]
    determiners = [(phrase.determiner, phrase.number) for phrase in phrases]
    adjectives = [adjective for part in sentence.parts for adjective in _adjectives(part)]
    orders = product(_same_number(nouns), _same_number(determiners), permutations(adjectives))
    filled = (
        _filled(sentence, iter(first), iter(second), iter(third)) for first, second, third in orders
    )
    return list(dict.fromkeys(other for other in filled if _natural(other)))


def draw_sentence(random: Random) -> Sentence:
    """Sample a sentence; about 12 % have two clauses."""
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


def _filled(
    sentence: Sentence,
    nouns: Iterator[words.Noun],
    determiners: Iterator[words.Determiner],
    adjectives: Iterator[words.Adjective],
) -> Sentence:
    """Return the sentence with these words, from left to right."""

    def phrase(old: NounPhrase) -> NounPhrase:
        return NounPhrase(
            next(determiners),
            next(adjectives) if old.adjective else None,
            next(nouns) if old.noun.animate else old.noun,
            old.number,
        )

    def part(old: Clause | Greeting) -> Clause | Greeting:
        if isinstance(old, Greeting):
            return Greeting(phrase(old.addressee))
        changed: dict[str, Any] = {
            name: phrase(value)
            for name in PHRASES
            if isinstance(value := getattr(old, name), NounPhrase)
        }
        return replace(old, **changed, predicate=next(adjectives) if old.predicate else None)

    return Sentence(tuple(part(old) for old in sentence.parts))


def _same_number(slots: Sequence[tuple[Item, int]]) -> Iterator[tuple[Item, ...]]:
    """Yield the orders of the items in which each slot keeps its grammatical number."""
    for order in permutations(slots):
        if all(new[1] == old[1] for new, old in zip(order, slots, strict=True)):
            yield tuple(item for item, _ in order)


def _natural(sentence: Sentence) -> bool:
    """Return whether no negated verb has an indefinite object, which French expresses differently."""
    return not any(
        isinstance(part, Clause)
        and part.negated
        and isinstance(part.object, NounPhrase)
        and part.object.determiner.indefinite
        for part in sentence.parts
    )


def _adjectives(part: Clause | Greeting) -> list[words.Adjective]:
    adjectives = [phrase.adjective for phrase in _phrases(part)]
    if isinstance(part, Clause):
        adjectives.append(part.predicate)
    return [adjective for adjective in adjectives if adjective]


def _phrases(part: Clause | Greeting) -> list[NounPhrase]:
    if isinstance(part, Greeting):
        return [part.addressee]
    values = (getattr(part, name) for name in PHRASES)
    return [phrase for phrase in values if isinstance(phrase, NounPhrase)]


def _choose(random: Random, items: Sequence[Item]) -> Item:
    return items[random.randint(len(items))]


def _choose_or_none(random: Random, probability: float, items: Sequence[Item]) -> Item | None:
    return _choose(random, items) if random.random_sample() < probability else None


def _noun_phrase(
    random: Random,
    *,
    animate: bool,
    adjective: float = 0.4,
    number: int | None = None,
    definite: bool = False,
) -> NounPhrase:
    nouns = [noun for noun in words.NOUNS if noun.animate or not animate]
    determiners = [
        determiner for determiner in words.DETERMINERS if not (definite and determiner.indefinite)
    ]
    return NounPhrase(
        _choose(random, determiners),
        _choose_or_none(random, adjective, words.ADJECTIVES),
        _choose(random, nouns),
        random.randint(2) if number is None else number,
    )


def _subject(random: Random, pronoun: float, *, adjective: float = 0.4) -> Subject:
    if random.random_sample() < pronoun:
        return _pronoun(random)
    return _noun_phrase(random, animate=True, adjective=adjective)


def _pronoun(random: Random) -> words.Pronoun:
    """Sample I, you and we three times as often: no noun has their verb forms."""
    return _choose(
        random,
        [pronoun for pronoun in words.PRONOUNS for _ in range(1 if pronoun.person == 3 else 3)],
    )


def _negated(random: Random) -> bool:
    return bool(random.random_sample() < 0.3)


def _transitive(random: Random) -> Clause:
    """Sample a clause; the object often has the number of the subject, so that the two can be exchanged."""
    subject, negated = _subject(random, 0.2), _negated(random)
    return Clause(
        subject,
        verb=_choose(random, words.TRANSITIVES),
        object=_object(random, subject, negated),
        negated=negated,
        adverbial=_choose_or_none(random, 0.1, words.ADVERBIALS),
    )


def _object(random: Random, subject: Subject, negated: bool) -> Subject:
    if random.random_sample() < 0.18:
        person = subject.person if isinstance(subject, words.Pronoun) else 3
        return _choose(
            random,
            [pronoun for pronoun in words.PRONOUNS if person == 3 or pronoun.person != person],
        )
    number = subject.number if random.random_sample() < 0.75 else None
    return _noun_phrase(
        random, animate=random.random_sample() < 0.75, number=number, definite=negated
    )


def _intransitive(random: Random) -> Clause:
    return Clause(
        _subject(random, 0.7),
        adverbial=_choose(random, words.ADVERBIALS),
        verb=_choose(random, words.INTRANSITIVES),
        negated=_negated(random),
    )


def _going(random: Random) -> Clause:
    """Sample a clause with go or another intransitive verb and a prepositional phrase."""
    preposition = _choose(random, words.PREPOSITIONS)
    return Clause(
        _subject(random, 0.6),
        verb=words.GO if random.random_sample() < 0.6 else _choose(random, words.INTRANSITIVES),
        preposition=preposition,
        complement=_noun_phrase(random, animate=preposition[0] == "with", definite=True),
        negated=_negated(random),
    )


def _copular(random: Random) -> Clause:
    subject: Subject = _noun_phrase(random, animate=False)
    if random.random_sample() < 0.4:
        subject = _pronoun(random)
    return Clause(subject, predicate=_choose(random, words.ADJECTIVES), negated=_negated(random))


def _greeting(random: Random) -> Greeting:
    return Greeting(_noun_phrase(random, animate=True, definite=True, adjective=0.6))


def _short_clause(random: Random) -> Clause:
    """Sample one of the two clauses around "and"."""
    subject = _subject(random, 0.3, adjective=0.3)
    negated = bool(random.random_sample() < 0.2)
    kind = random.random_sample()
    if kind < 0.4:
        return Clause(subject, verb=_choose(random, words.INTRANSITIVES), negated=negated)
    if kind < 0.7:
        return Clause(subject, predicate=_choose(random, words.ADJECTIVES), negated=negated)
    verb = _choose(random, words.TRANSITIVES)
    return Clause(subject, verb=verb, object=_object(random, subject, negated), negated=negated)
