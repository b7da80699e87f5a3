"""Generated corpora of tasks whose target a function computes: distinct examples of every length.

``numpy.random.RandomState`` is used because its streams are frozen: a seed generates the same pairs
under every version of numpy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.entry import Options

Random = np.random.RandomState

HELD_OUT = 5
"""Split length: at most one fifth of the examples of a training length is in the test part."""

MIN_EXAMPLES = 20
"""Smallest number of examples that can be divided into train, valid and test."""


class LengthOptions(Options):
    """Number and lengths of the generated pairs."""

    size: int = Field(
        6000, ge=50, le=200_000, description="distinct pairs up to longest; the test part of split length is extra"
    )
    seed: int = Field(1, ge=1, le=2**32 - 1, description="seed of the generator; data.seed is the seed of the split")
    shortest: int = Field(1, ge=1, le=100, description="length of the shortest example")
    longest: int = Field(10, ge=1, le=100, description="length of the longest example, L")
    test_each: int = Field(50, ge=1, le=10_000, description="split length: test pairs of each length up to 2 · longest")


@dataclass(frozen=True)
class Example:
    """One pair, or several pairs that must stay in the same part of a split.

    Two examples with the same ``key`` are duplicates. ``pairs`` are source and target as text.
    """

    key: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Task:
    """A task whose targets are computed.

    Args:
        name: Name of the dataset, for errors.
        languages: Descriptions of source and target.
        citation: Origin of the task.
        draw: Generates an example of a length; all keys must be about equally likely.
        capacity: Number of keys of a length.
        each: Number of pairs of an example of a length.
        targets_join: See `Corpus`.
        unit: Unit of a length, in the plural.
    """

    name: str
    languages: tuple[str, str]
    citation: str
    draw: Callable[[Random, int], Example]
    capacity: Callable[[int], int]
    each: Callable[[int], int] = lambda _: 1
    targets_join: bool = True
    unit: str = "symbols"


def generate_corpus(task: Task, options: LengthOptions, split: str) -> Corpus:
    """Generate a corpus.

    Split ``iid`` has all lengths up to ``longest``; headtohead divides it. For split ``length`` the
    test part is generated first: ``test_each`` pairs of each length up to twice ``longest``, so that
    it has lengths of the training part and longer ones. No example of the test part is generated
    again for the other parts.

    Raises:
        HeadToHeadError: If the task has fewer examples than requested.
    """
    if options.shortest > options.longest:
        raise HeadToHeadError(
            f"{task.name}: shortest is {options.shortest} and longest {options.longest}; "
            "lower shortest or raise longest"
        )
    random, seen = Random(options.seed), defaultdict[int, set[str]](set)

    def draw(length: int, count: int, part: str | None) -> Iterator[Pair]:
        """Generate examples of a length, each with a key that no earlier example of that length has."""
        for _ in range(count):
            while (example := task.draw(random, length)).key in seen[length]:
                pass
            seen[length].add(example.key)
            yield from (Pair(*pair, example.key, part) for pair in example.pairs)

    test: list[Pair] = []
    if split == "length":
        for length in range(options.shortest, 2 * options.longest + 1):
            available = task.capacity(length)
            if length <= options.longest:
                available //= HELD_OUT
            test += draw(length, min(options.test_each // task.each(length), available), "test")
    counts = _counts(task, options, {length: len(keys) for length, keys in seen.items()})
    rest = [pair for length, count in counts.items() for pair in draw(length, count, None)]
    note = (
        f"split length: train and valid have {options.shortest} to {options.longest} {task.unit}, test has "
        f"{options.shortest} to {2 * options.longest}, up to {options.test_each} pairs of each length"
    )
    return Corpus(
        pairs=[*rest, *test],
        licence="MIT",
        citation=f"headtohead {task.name}: generated, after {task.citation}",
        languages=task.languages,
        notes=(note,) if split == "length" else (),
        targets_join=task.targets_join,
    )


def _counts(task: Task, options: LengthOptions, used: dict[int, int]) -> dict[int, int]:
    """Return the number of examples of each length: equally many pairs as far as a length has them."""
    lengths = range(options.shortest, options.longest + 1)
    free = {length: task.capacity(length) - used.get(length, 0) for length in lengths}
    pairs_of = {length: free[length] * task.each(length) for length in lengths}
    if sum(pairs_of.values()) < options.size:
        raise HeadToHeadError(
            f"{task.name} has only {sum(pairs_of.values()):,} pairs of {options.shortest} to {options.longest} "
            f"{task.unit}{' outside its test part' if used else ''}, but size is {options.size:,}; "
            "lower size, or allow more lengths or symbols"
        )
    counts, remaining = {}, options.size
    for left, length in zip(range(len(lengths), 0, -1), sorted(lengths, key=pairs_of.__getitem__), strict=True):
        counts[length] = min(free[length], remaining // left // task.each(length))
        remaining -= counts[length] * task.each(length)
    if sum(counts.values()) < MIN_EXAMPLES:
        raise HeadToHeadError(
            f"{task.name}: size {options.size:,} gives {sum(counts.values())} examples of "
            f"{max(map(task.each, lengths)):,} pairs each, fewer than {MIN_EXAMPLES}; raise size or lower longest"
        )
    return {length: counts[length] for length in lengths}
