"""Random toy sentences, each with some of its siblings: the same English words in another order.

``numpy.random.RandomState`` is used because its streams are frozen: a seed generates the same
sentences under every version of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any, TypeVar

import numpy as np

from headtohead_plugins.datasets.toy import lexicon as words
from headtohead_plugins.datasets.toy.grammar import Clause, Greeting, NounPhrase, Sentence, Subject

SHORTEST = 3
LONGEST = 14
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
    nouns: list[tuple[words.Noun, int]] = []
    determiners: list[tuple[words.Determiner, int]] = []
    adjectives: list[words.Adjective] = []
    for part in sentence.parts:
        adjectives += _adjectives(part)
        for phrase in _phrases(part):
            determiners.append((phrase.determiner, phrase.number))
            if phrase.noun.animate:
                nouns.append((phrase.noun, phrase.number))
    orders = product(_same_number(nouns), _same_number(determiners), permutations(adjectives))
    distinct: dict[Sentence, None] = {}
    for noun_order, determiner_order, adjective_order in orders:
        filled = _filled(sentence, iter(noun_order), iter(determiner_order), iter(adjective_order))
        if _natural(filled):
            distinct[filled] = None
    return list(distinct)


def draw_sentence(random: Random) -> Sentence:
    """Sample a sentence; about 12 % have two clauses."""
    if random.random_sample() < 0.12:
        return Sentence((_short_clause(random), _short_clause(random)))
    kinds: Mapping[Callable[[Random], Clause | Greeting], float] = {
        _transitive: 0.58,
        _intransitive: 0.17,
        _going: 0.07,
        _copular: 0.15,
        _greeting: 0.03,
    }
    index = int(random.choice(len(kinds), p=[*kinds.values()]))
    draw_part = [*kinds][index]
    return Sentence((draw_part(random),))


def _filled(
    sentence: Sentence,
    nouns: Iterator[words.Noun],
    determiners: Iterator[words.Determiner],
    adjectives: Iterator[words.Adjective],
) -> Sentence:
    """Return the sentence with these words, from left to right."""

    def fill_phrase(phrase: NounPhrase) -> NounPhrase:
        determiner = next(determiners)
        adjective = next(adjectives) if phrase.adjective else None
        noun = next(nouns) if phrase.noun.animate else phrase.noun
        return NounPhrase(determiner, adjective, noun, phrase.number)

    def fill_part(part: Clause | Greeting) -> Clause | Greeting:
        if isinstance(part, Greeting):
            return Greeting(fill_phrase(part.addressee))
        changed: dict[str, Any] = {}
        for name in PHRASES:
            value = getattr(part, name)
            if isinstance(value, NounPhrase):
                changed[name] = fill_phrase(value)
        if part.predicate:
            changed["predicate"] = next(adjectives)
        return replace(part, **changed)

    return Sentence(tuple(fill_part(part) for part in sentence.parts))


def _same_number(slots: Sequence[tuple[Item, int]]) -> Iterator[tuple[Item, ...]]:
    """Yield the orders of the items in which each slot keeps its grammatical number."""
    numbers = [number for _, number in slots]
    for order in permutations(slots):
        if [number for _, number in order] == numbers:
            yield tuple(item for item, _ in order)


def _natural(sentence: Sentence) -> bool:
    """Return whether no negated verb has an indefinite object, which French expresses differently."""
    for part in sentence.parts:
        if not isinstance(part, Clause) or not part.negated:
            continue
        if isinstance(part.object, NounPhrase) and part.object.determiner.indefinite:
            return False
    return True


def _adjectives(part: Clause | Greeting) -> list[words.Adjective]:
    """Return the adjectives of a part from left to right, that of the predicate last."""
    adjectives = []
    for phrase in _phrases(part):
        if phrase.adjective:
            adjectives.append(phrase.adjective)
    if isinstance(part, Clause) and part.predicate:
        adjectives.append(part.predicate)
    return adjectives


def _phrases(part: Clause | Greeting) -> list[NounPhrase]:
    if isinstance(part, Greeting):
        return [part.addressee]
    values = (getattr(part, name) for name in PHRASES)
    return [phrase for phrase in values if isinstance(phrase, NounPhrase)]


def _choose(random: Random, items: Sequence[Item]) -> Item:
    return items[random.randint(len(items))]


def _choose_or_none(random: Random, probability: float, items: Sequence[Item]) -> Item | None:
    if random.random_sample() < probability:
        return _choose(random, items)
    return None


def _noun_phrase(
    random: Random,
    *,
    animate: bool,
    adjective: float = 0.4,
    number: int | None = None,
    definite: bool = False,
) -> NounPhrase:
    """Sample a noun phrase.

    Args:
        random: The generator.
        animate: Whether the noun is animate; False allows all nouns.
        adjective: Probability of an adjective.
        number: 0 (singular) or 1 (plural); by default random.
        definite: Whether the determiner is definite; False allows all determiners.
    """
    nouns = [noun for noun in words.NOUNS if noun.animate or not animate]
    determiners = [word for word in words.DETERMINERS if not (definite and word.indefinite)]
    chosen_determiner = _choose(random, determiners)
    chosen_adjective = _choose_or_none(random, adjective, words.ADJECTIVES)
    chosen_noun = _choose(random, nouns)
    if number is None:
        number = random.randint(2)
    return NounPhrase(chosen_determiner, chosen_adjective, chosen_noun, number)


def _subject(random: Random, pronoun: float, *, adjective: float = 0.4) -> Subject:
    if random.random_sample() < pronoun:
        return _pronoun(random)
    return _noun_phrase(random, animate=True, adjective=adjective)


def _pronoun(random: Random) -> words.Pronoun:
    """Sample I, you and we three times as often: no noun has their verb forms."""
    pronouns: list[words.Pronoun] = []
    for pronoun in words.PRONOUNS:
        pronouns += [pronoun] if pronoun.person == 3 else [pronoun] * 3
    return _choose(random, pronouns)


def _negated(random: Random) -> bool:
    return bool(random.random_sample() < 0.3)


def _transitive(random: Random) -> Clause:
    """Sample a clause; the object often has the number of the subject, so that the two can be exchanged."""
    subject = _subject(random, 0.2)
    negated = _negated(random)
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
        # No reflexive pronouns: "I watch me".
        others = [word for word in words.PRONOUNS if person == 3 or word.person != person]
        return _choose(random, others)
    number = subject.number if random.random_sample() < 0.75 else None
    animate = random.random_sample() < 0.75
    return _noun_phrase(random, animate=animate, number=number, definite=negated)


def _intransitive(random: Random) -> Clause:
    """Sample a clause without an object, with an adverbial."""
    subject = _subject(random, 0.7)
    adverbial = _choose(random, words.ADVERBIALS)
    verb = _choose(random, words.INTRANSITIVES)
    return Clause(subject, verb=verb, adverbial=adverbial, negated=_negated(random))


def _going(random: Random) -> Clause:
    """Sample a clause with go or another intransitive verb and a prepositional phrase."""
    preposition = _choose(random, words.PREPOSITIONS)
    subject = _subject(random, 0.6)
    verb = words.GO
    if random.random_sample() >= 0.6:
        verb = _choose(random, words.INTRANSITIVES)
    complement = _noun_phrase(random, animate=preposition[0] == "with", definite=True)
    return Clause(
        subject,
        verb=verb,
        preposition=preposition,
        complement=complement,
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
