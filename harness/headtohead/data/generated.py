"""Generated corpora of tasks whose target a function computes: distinct examples of every length.

``numpy.random.RandomState`` is used because its streams are frozen: a seed generates the same pairs
under every version of numpy.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data.metrics import EXACT_MATCH
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Dataset, Pair
from headtohead.plugins.entry import BaseOptions, Options
from headtohead.schema.metric import Metric
from headtohead.schema.phrases import Phrase
from headtohead.schema.sections import OmittedAtDefault, OmittingSection

Random = np.random.RandomState

HELD_OUT = 5
"""Split length: at most one fifth of the examples of a training length is in the test part."""

MIN_EXAMPLES = 20
"""Smallest number of examples that can be divided into train, valid and test."""


class SizeOptions(OmittingSection, Options):
    """Number of the generated pairs; subclasses have options for their lengths."""

    size: Annotated[int, Phrase("{value} examples")] = Field(
        6000,
        ge=50,
        le=200_000,
        description="distinct pairs; the test part of split length is extra",
    )
    seed: Annotated[int, Phrase("data seed {value}")] = Field(
        1,
        ge=1,
        le=2**32 - 1,
        description="seed of the generator; data.seed is the seed of the split",
    )
    test_each: Annotated[int, Phrase("{value} test examples of each length")] = Field(
        50, ge=1, le=10_000, description="split length: test pairs of each length"
    )

    def lengths(self, part: str = "train") -> Sequence[Any]:
        """Return the lengths of the training examples, or with ``"test"`` of the test part of split length."""
        raise NotImplementedError

    def contradiction(self, split: str) -> str | None:
        """Return which options contradict each other or the split, or None."""
        raise NotImplementedError


Length = Annotated[int, Field(ge=1, le=1000)]


class LengthOptions(SizeOptions):
    """Number and lengths of the generated pairs."""

    shortest: Annotated[int, Phrase("examples of length {value} and longer")] = Field(
        1, ge=1, le=100, description="length of the shortest example"
    )
    longest: Annotated[int, Phrase("examples of length {value} and shorter")] = Field(
        10, ge=1, le=100, description="length of the longest example, L"
    )
    test_lengths: Annotated[tuple[Length, Length] | None, OmittedAtDefault()] = Field(
        None,
        description="split length: lengths of the shortest and the longest test example; default: shortest, 2 · L",
    )

    def lengths(self, part: str = "train") -> Sequence[int]:
        """Return all lengths from the shortest to the longest."""
        if part != "test":
            return range(self.shortest, self.longest + 1)
        first, last = self.test_lengths or (self.shortest, 2 * self.longest)
        return range(first, last + 1)

    def contradiction(self, split: str) -> str | None:
        """Return which lengths contradict each other or the split, or None."""
        if self.shortest > self.longest:
            return f"shortest is {self.shortest} and longest {self.longest}; lower shortest or raise longest"
        if not self.lengths("test"):
            return "test_lengths has the longest test example first; exchange the two"
        return None

    def longest_of(self, split: str) -> int:
        """Return the length of the longest example of a split."""
        if split == "length":
            return max([self.longest, *self.lengths("test")])
        return self.longest

    def shortest_of(self, split: str) -> int:
        """Return the length of the shortest example of a split."""
        if split == "length":
            return min([self.shortest, *self.lengths("test")])
        return self.shortest


@dataclass(frozen=True)
class Example:
    """One pair, or several pairs that must stay in the same part of a split.

    Two examples with the same ``key`` are duplicates. ``pairs`` are source and target as text, and ``labelled`` are the
    labelled words of every source (see `Pair`).
    """

    key: str
    pairs: tuple[tuple[str, str], ...]
    labelled: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Task:
    """A task whose targets are computed.

    Args:
        languages: Descriptions of source and target.
        citation: Origin of the task.
        draw: Generates an example of a length; all keys must be about equally likely.
        capacity: Number of keys of a length.
        each: Number of pairs of an example of a length.
        targets_join: See `Corpus`.
        unit: Unit of a length, in the plural.

    A length is a value of `SizeOptions.lengths`.
    """

    languages: tuple[str, str]
    citation: str
    draw: Callable[[Random, Any], Example]
    capacity: Callable[[Any], int]
    each: Callable[[Any], int] = lambda _: 1
    targets_join: bool = False
    unit: str = "symbols"


def generate_corpus(name: str, task: Task, options: SizeOptions, split: str) -> Corpus:
    """Generate the corpus of the dataset ``name``.

    With split ``iid``, all examples have training lengths, and headtohead divides them. With split ``length``, the test
    part has up to ``test_each`` pairs of each test length: of a length that is a training length too, at most a
    fraction 1 / `HELD_OUT` of its examples. No example of the test part is generated again for the other parts.

    Raises:
        HeadToHeadError: If the options contradict each other, or the task has fewer examples than requested.
    """
    contradiction = options.contradiction(split)
    if contradiction:
        raise HeadToHeadError(f"{name}: {contradiction}")
    random = Random(options.seed)
    used_keys = defaultdict[Any, set[str]](set)  # by length

    def new_pairs(length: Any, count: int, part: str | None) -> Iterator[Pair]:
        """Generate examples of a length, each with a key that no earlier example of that length has."""
        for _ in range(count):
            example = task.draw(random, length)
            while example.key in used_keys[length]:
                example = task.draw(random, length)
            used_keys[length].add(example.key)
            for source, target in example.pairs:
                yield Pair(source, target, example.key, part, example.labelled)

    train_lengths = options.lengths()
    test_pairs: list[Pair] = []
    notes: list[str] = []
    if split == "length":  # the test part first, so that it does not depend on `size`
        test_lengths = options.lengths("test")
        for length in test_lengths:
            available = task.capacity(length)
            if length in train_lengths:
                available //= HELD_OUT
            requested = options.test_each // task.each(length)
            test_pairs += new_pairs(length, min(requested, available), "test")
        notes.append(
            f"split length: train and valid have {train_lengths[0]} to {train_lengths[-1]} {task.unit}, test has "
            f"{test_lengths[0]} to {test_lengths[-1]}, up to {options.test_each} pairs of each length"
        )
    num_used = {length: len(keys) for length, keys in used_keys.items()}
    undivided_pairs: list[Pair] = []
    for length, count in _counts(name, task, options, num_used).items():
        undivided_pairs += new_pairs(length, count, None)
    return Corpus(
        pairs=[*undivided_pairs, *test_pairs],
        licence="MIT",
        citation=f"headtohead {name}: generated, after {task.citation}",
        languages=task.languages,
        notes=tuple(notes),
        is_closed=True,
        targets_join=task.targets_join,
    )


def _counts(name: str, task: Task, options: SizeOptions, used: Mapping[Any, int]) -> dict[Any, int]:
    """Return the number of examples of each length: equally many pairs as far as a length has them."""
    lengths = options.lengths()
    each = {length: task.each(length) for length in lengths}
    free = {length: task.capacity(length) - used.get(length, 0) for length in lengths}
    free_pairs = {length: free[length] * each[length] for length in lengths}
    available = sum(free_pairs.values())
    if available < options.size:
        outside = " outside its test part" if used else ""
        raise HeadToHeadError(
            f"{name} has only {available:,} pairs of {lengths[0]} to {lengths[-1]} {task.unit}{outside}, "
            f"but size is {options.size:,}; lower size, or allow more lengths or symbols"
        )
    # The lengths with the fewest pairs first: what they lack is divided among the others.
    ascending = sorted(lengths, key=lambda length: free_pairs[length])
    counts = {}
    remaining = options.size
    for index, length in enumerate(ascending):
        share = remaining // (len(ascending) - index)
        counts[length] = min(free[length], share // each[length])
        remaining -= counts[length] * each[length]
    examples = sum(counts.values())
    if examples < MIN_EXAMPLES:
        raise HeadToHeadError(
            f"{name}: size {options.size:,} gives {examples} examples of {max(each.values()):,} pairs each, fewer "
            f"than {MIN_EXAMPLES}; raise size or lower longest"
        )
    return {length: counts[length] for length in lengths}


class ComputedDataset(Dataset):
    """A dataset of a task whose targets are computed; subclasses implement ``task``."""

    Options: ClassVar[type[BaseOptions]] = LengthOptions
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    of_split: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("test_each", "test_lengths", "test_levels"), "length"
    )
    normalise: ClassVar[str] = "none"

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Return the task with these options."""
        raise NotImplementedError

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate the corpus."""
        assert isinstance(options, SizeOptions)
        return generate_corpus(cls.entry_name, cls.task(options, split), options, split)

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str | None:
        """Return a hash of the generator; None for a task of another package, which may read files or other modules.

        The options and the source of the entry are part of the cache's name.
        """
        if not cls.__module__.startswith("headtohead_plugins."):
            return None
        return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


class LabelledDataset(ComputedDataset):
    """A task on sequences with labels, for decoder-only models: its test scores are those of a single pass."""

    metrics: ClassVar[tuple[Metric, ...]] = (EXACT_MATCH,)
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"source_boundaries": "none", "target_boundaries": "eos"},
        "model": {"architecture": "decoder-only"},
        "evaluate": {"decode": "teacher-forced"},
    }
