"""Drawing the pairs of a task whose answer a function knows: distinct questions of every length.

``numpy.random.RandomState`` is used because its streams are frozen: the same seed draws the same
pairs under every version of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from pydantic import Field

from headtohead.data.corpus import hash_pairs
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.entry import Options

Random = np.random.RandomState

HELD_OUT = 5
"""Split length: of a length that is trained on, at most every fifth question is in the test."""

FEWEST = 20
"""Fewest questions that can be divided into train, valid and test."""


class LengthOptions(Options):
    """How many pairs are drawn, and of which lengths."""

    size: int = Field(6000, ge=50, le=200_000, description="distinct pairs up to longest; the test of length beside")
    seed: int = Field(1, ge=1, description="seed of the draw; data.seed is that of the split")
    shortest: int = Field(1, ge=1, description="length of the shortest question")
    longest: int = Field(10, ge=1, le=100, description="length of the longest, L")
    test_each: int = Field(50, ge=1, description="split length: test pairs of each length up to 2 · longest")


@dataclass(frozen=True)
class Question:
    """One pair, or several that belong to one side of a split: the same ``key``, asked anew.

    ``key`` is what makes two questions the same; ``pairs`` are source and target as text.
    """

    key: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Task:
    """A computable task.

    Args:
        name: Of the dataset, for errors.
        languages: What a source and a target are.
        citation: Where the task is from.
        draw: PerMemberRNG a question of a length; every key about equally likely.
        capacity: How many keys a length has.
        each: How many pairs a question of a length has.
        targets_join: See `Corpus`.
        unit: What a length counts, in the plural.
    """

    name: str
    languages: tuple[str, str]
    citation: str
    draw: Callable[[Random, int], Question]
    capacity: Callable[[int], int]
    each: Callable[[int], int] = lambda _: 1
    targets_join: bool = True
    unit: str = "symbols"


def drawn_corpus(task: Task, options: LengthOptions, split: str) -> Corpus:
    """Draw a corpus: of split iid all lengths up to ``longest``, to be divided by the harness.

    Of split length the test is drawn first, ``test_each`` pairs of each length up to twice the
    longest, so that it holds lengths that were trained on and lengths that were not. None of its
    questions is drawn again.

    Raises:
        HeadToHeadError: If there are not so many questions.
    """
    if options.shortest > options.longest:
        raise HeadToHeadError(
            f"{task.name}: shortest is {options.shortest} and longest {options.longest}; a length lies between them"
        )
    random = Random(options.seed)
    seen: dict[int, set[str]] = {}
    test: list[Pair] = []
    if split == "length":
        for length in range(options.shortest, 2 * options.longest + 1):
            most = task.capacity(length)
            most = most // HELD_OUT if length <= options.longest else most
            wanted = min(options.test_each // task.each(length), most)
            test += _draw(task, random, length, wanted, seen.setdefault(length, set()), "test")
    shares = _shares(task, options, {length: len(keys) for length, keys in seen.items()})
    rest = [
        pair
        for length, wanted in shares.items()
        for pair in _draw(task, random, length, wanted, seen.setdefault(length, set()), None)
    ]
    pairs = [*rest, *test]
    return Corpus(
        pairs=pairs,
        data_hash=hash_pairs(pairs),
        licence="MIT",
        citation=f"headtohead {task.name}: generated, after {task.citation}",
        languages=task.languages,
        notes=_notes(task, options, split),
        targets_join=task.targets_join,
    )


def _draw(task: Task, random: Random, length: int, wanted: int, seen: set[str], part: str | None) -> list[Pair]:
    pairs: list[Pair] = []
    left = wanted
    while left:
        question = task.draw(random, length)
        if question.key not in seen:
            seen.add(question.key)
            left -= 1
            pairs += [Pair(*pair, question.key, part) for pair in question.pairs]
    return pairs


def _shares(task: Task, options: LengthOptions, taken: dict[int, int]) -> dict[int, int]:
    """Return how many questions of each length: equally many pairs, as far as a length has them."""
    lengths = range(options.shortest, options.longest + 1)
    free = {length: task.capacity(length) - taken.get(length, 0) for length in lengths}
    there = sum(free[length] * task.each(length) for length in lengths)
    if there < options.size:
        raise HeadToHeadError(
            f"{task.name} has only {there:,} pairs of {options.shortest} to {options.longest} "
            f"{task.unit}{' beside its test' if taken else ''}, size asks for {options.size:,}; "
            "lower size, or allow more lengths or words"
        )
    shares, left = {}, options.size
    by_room = sorted(lengths, key=lambda length: free[length] * task.each(length))
    for place, length in enumerate(by_room):
        fair = left // (len(by_room) - place)
        shares[length] = min(free[length], fair // task.each(length))
        left -= shares[length] * task.each(length)
    if sum(shares.values()) < FEWEST:
        raise HeadToHeadError(
            f"{task.name}: size {options.size:,} holds {sum(shares.values())} questions of "
            f"{max(task.each(length) for length in lengths):,} pairs each; raise size or lower "
            "longest"
        )
    return {length: shares[length] for length in lengths}


def _notes(task: Task, options: LengthOptions, split: str) -> tuple[str, ...]:
    if split != "length":
        return ()
    low, high = options.shortest, options.longest
    return (
        f"split length: train and valid have {low} to {high} {task.unit}, the test {low} to "
        f"{2 * high}, up to {options.test_each} pairs of each length",
    )


class SymbolOptions(LengthOptions):
    """Sequences of symbols, which are the numbers from 0 on."""

    alphabet: int = Field(10, ge=2, le=1000, description="number of symbols")
    distinct: bool = Field(False, description="no symbol twice in a source")
    all_orders: bool = Field(
        False, description="every drawn set of n symbols in all its n! orders, on one side of the split; needs distinct"
    )


def symbol_corpus(
    name: str,
    options: SymbolOptions,
    split: str,
    answer: Callable[[Sequence[int]], Sequence[int]],
    *,
    citation: str,
    ordered: bool = True,
) -> Corpus:
    """Draw sequences of symbols and answer each.

    Args:
        name: Of the dataset, for errors.
        options: As the experiment file has them.
        split: iid or length.
        answer: From a source to its target.
        citation: Where the task is from.
        ordered: Whether another order of the same symbols is another question.

    Raises:
        HeadToHeadError: For options that contradict each other, or ask for more than there is.
    """
    _check_symbols(name, options, split)
    by_bag = options.all_orders or not ordered

    def draw(random: Random, length: int) -> Question:
        source = _symbols(random, length, options, by_bag)
        key = " ".join(map(str, sorted(source) if by_bag else source))
        orders = _orders(source) if options.all_orders else [source]
        return Question(key, tuple((_text(one), _text(answer(one))) for one in orders))

    def capacity(length: int) -> int:
        size = options.alphabet
        if options.distinct:
            return math.comb(size, length) if by_bag else math.perm(size, length)
        return math.comb(size + length - 1, length) if by_bag else size**length

    each = math.factorial if options.all_orders else lambda _: 1
    languages = ("symbols", f"symbols ({name})")
    return drawn_corpus(Task(name, languages, citation, draw, capacity, each), options, split)


def _check_symbols(name: str, options: SymbolOptions, split: str) -> None:
    most = options.longest * (2 if split == "length" else 1)
    if options.distinct and options.alphabet < most:
        twice = " (2 · longest, of split length)" if split == "length" else ""
        raise HeadToHeadError(
            f"{name}: {most} distinct symbols{twice} need an alphabet of {most}, got "
            f"{options.alphabet}; raise alphabet or lower longest"
        )
    if options.all_orders and not options.distinct:
        raise HeadToHeadError(f"{name}: all_orders needs distinct: true, or orders repeat")
    if options.all_orders and split == "length":
        raise HeadToHeadError(
            f"{name}: all_orders has no split length, whose {most} symbols have {most}! orders; use split: iid"
        )


def _symbols(random: Random, length: int, options: SymbolOptions, by_bag: bool) -> list[int]:
    """Draw symbols: every sequence equally likely, or every bag, in a random order."""
    if options.distinct:
        return [int(one) for one in random.permutation(options.alphabet)[:length]]
    if not by_bag:
        return [int(one) for one in random.randint(options.alphabet, size=length)]
    # n bars among alphabet + n - 1 places are a multiset of n symbols, each equally likely.
    places = np.sort(random.permutation(options.alphabet + length - 1)[:length])
    return [int(one) for one in random.permutation(places - np.arange(length))]


def _orders(symbols: Sequence[int]) -> list[list[int]]:
    return [list(one) for one in permutations(sorted(symbols))]


def _text(symbols: Sequence[int]) -> str:
    return " ".join(map(str, symbols))
