"""copy, reverse and sort: the target is the source, its reverse, or its symbols in ascending order.

The target of sort does not depend on the order of the source, so the encoder needs no positions; all orders of a
multiset are the same example. With ``distinct`` and ``all_orders``, an order-invariant encoder reaches at most 1/n!
exact match on n reversed symbols: it has the same output for all n! orders of a set.

Papers: Graves et al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.1 (copy, trained on lengths up to 20 and
tested on longer ones) and section 4.5 (sort, here without its priorities: symbols are numbers sorted by value).
Grefenstette et al. 2015, Learning to Transduce with Unbounded Memory, arXiv:1506.02516, section 4 (reverse).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import ComputedDataset, Example, LengthOptions, Task
from headtohead.plugin import Dataset, HeadToHeadError, hookimpl
from headtohead.plugin import Options as BaseOptions


class Options(LengthOptions):
    """Options of tasks on sequences of symbols; symbols are numbers from 0."""

    alphabet: int = Field(10, ge=2, le=1000, description="number of symbols")
    distinct: bool = Field(False, description="no symbol occurs twice in a source")
    all_orders: bool = Field(
        False,
        description="every generated set of n symbols in all its n! orders, in the same part of the split; "
        "requires distinct",
    )


class Symbols(ComputedDataset):
    """A task on sequences of symbols."""

    Options: ClassVar[type[BaseOptions]] = Options
    citation: ClassVar[str]
    ordered: ClassVar[bool] = True
    """Whether another order of the same symbols is another example."""

    @staticmethod
    def _answer(symbols: Sequence[int]) -> Sequence[int]:
        """Return the target of a source."""
        raise NotImplementedError

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate sequences of symbols and compute the target of each."""
        name = cls.entry_name
        size = options.alphabet
        longest = options.longest_of(split)
        if options.distinct and size < longest:
            raise HeadToHeadError(
                f"{name}: {longest} distinct symbols require an alphabet of {longest}, got {size}; raise "
                "alphabet or lower longest (by default, split length has twice the longest length)"
            )
        if options.all_orders and (split == "length" or not options.distinct):
            raise HeadToHeadError(f"{name}: all_orders requires distinct: true and split: iid")
        # Whether all orders of the same symbols are one example.
        by_bag = options.all_orders or not cls.ordered

        def draw(random: np.random.RandomState, length: int) -> Example:
            source = _draw_symbols(random, length, options, by_bag).tolist()
            key = _text(sorted(source)) if by_bag else _text(source)
            orders: Iterable[Sequence[int]] = [source]
            if options.all_orders:
                orders = permutations(sorted(source))
            pairs = [(_text(order), _text(cls._answer(order))) for order in orders]
            return Example(key, tuple(pairs))

        def capacity(length: int) -> int:
            if options.distinct:
                return math.comb(size, length) if by_bag else math.perm(size, length)
            if by_bag:
                return math.comb(size + length - 1, length)
            return int(size**length)

        return Task(
            languages=("symbols", f"symbols ({name})"),
            citation=cls.citation,
            draw=draw,
            capacity=capacity,
            each=math.factorial if options.all_orders else _one,
            targets_join=True,
        )


class Copy(Symbols):
    """Generated sequences of symbols that the model must repeat."""

    phrase = "copying"
    citation = "Graves et al. 2014, Neural Turing Machines, section 4.1"

    @staticmethod
    def _answer(symbols: Sequence[int]) -> Sequence[int]:
        return symbols


class Reverse(Symbols):
    """Generated sequences of symbols that the model must reverse."""

    phrase = "reversal"
    citation = "Grefenstette et al. 2015, Learning to Transduce with Unbounded Memory"

    @staticmethod
    def _answer(symbols: Sequence[int]) -> Sequence[int]:
        return symbols[::-1]


class Sort(Symbols):
    """Generated sequences of numbers that the model must sort."""

    phrase = "sorting"
    citation = "Graves et al. 2014, Neural Turing Machines, section 4.5"
    ordered = False

    @staticmethod
    def _answer(symbols: Sequence[int]) -> Sequence[int]:
        return sorted(symbols)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"copy": Copy, "reverse": Reverse, "sort": Sort}


def _draw_symbols(
    random: np.random.RandomState, length: int, options: Options, by_bag: bool
) -> np.ndarray:
    """Return random symbols; all distinct sequences, or with ``by_bag`` all multisets, are equally likely."""
    if options.distinct:
        return random.permutation(options.alphabet)[:length]
    if not by_bag:
        return random.randint(options.alphabet, size=length)
    # Stars and bars: n of alphabet + n - 1 positions are a multiset of n symbols.
    positions = np.sort(random.permutation(options.alphabet + length - 1)[:length])
    return random.permutation(positions - np.arange(length))


def _one(length: int) -> int:
    return 1


def _text(symbols: Sequence[int]) -> str:
    return " ".join(str(symbol) for symbol in symbols)
