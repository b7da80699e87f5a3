"""Invariants of datasets: what every dataset must satisfy, checked on the corpora of all its splits."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from pathlib import Path

from headtohead.data import prepare_corpus
from headtohead.data.preparing import load_corpus
from headtohead.data.splits import PARTS
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Dataset
from headtohead.plugins.entry import Options
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig
from headtohead.testing.invariant import Invariant
from headtohead.testing.verdict import Verdict, violated

COMPUTED_SPLITS = ("grouped", "row", NOTHING_HELD_OUT)
"""Splits that the harness computes; in all others the dataset assigns every pair to a part."""


@dataclass(frozen=True)
class DatasetSubject:
    """A dataset with validated options, and two independently loaded corpora of every split."""

    name: str
    dataset: type[Dataset]
    options: Options
    corpora: Mapping[str, tuple[Corpus, Corpus]]

    @classmethod
    def load(
        cls, name: str, dataset: type[Dataset], options: Options, cache: Path | None = None
    ) -> DatasetSubject:
        """Load every split twice: with empty folders for downloads, or both times with ``cache``."""
        corpora: dict[str, tuple[Corpus, Corpus]] = {}
        with tempfile.TemporaryDirectory() as folder:
            first = cache or Path(folder, "first")
            second = cache or Path(folder, "second")
            for split in dataset.splits:
                corpus = load_corpus(dataset, options, split, first)
                corpora[split] = (corpus, load_corpus(dataset, options, split, second))
        return cls(name, dataset, options, corpora)

    @property
    def first(self) -> Mapping[str, Corpus]:
        """The first corpus of every split."""
        return {split: corpus for split, (corpus, _) in self.corpora.items()}


def invariant(name: str) -> Callable[[Callable[[DatasetSubject], Iterator[str]]], Invariant]:
    """Return a decorator that turns a function into an invariant; it yields a sentence for each violation."""

    def make(faults: Callable[[DatasetSubject], Iterator[str]]) -> Invariant:
        @wraps(faults)
        def check(subject: DatasetSubject) -> Verdict:
            sentences = list(faults(subject))
            if sentences:
                return violated(sentences[0], float(len(sentences)))
            pairs = sum(len(corpus.pairs) for corpus in subject.first.values())
            reason = f"violations in {pairs:,} pairs of {len(subject.corpora)} splits"
            return Verdict("holds", 0.0, reason)

        return Invariant(name, check)

    return make


@invariant("same-pairs")
def loading_is_reproducible(subject: DatasetSubject) -> Iterator[str]:
    """Loading again returns the same pairs in the same order."""
    for split, (corpus, again) in subject.corpora.items():
        for number, (pair, other) in enumerate(zip_longest(corpus.pairs, again.pairs)):
            if pair != other:
                yield f"split {split}: pair {number} is {pair}, loaded again {other}"


@invariant("texts")
def pairs_have_texts(subject: DatasetSubject) -> Iterator[str]:
    """Every pair has a group and two texts on one line; of some pairs, both are not empty (without sources, one)."""
    for split, corpus in subject.first.items():
        usable = 0
        for pair in corpus.pairs:
            if pair.target.strip() and (pair.source.strip() or not corpus.has_sources):
                usable += 1
        if not usable:
            yield f"split {split}: no pair with two texts"
        for number, pair in enumerate(corpus.pairs):
            for text in (pair.source, pair.target):
                if {"\n", "\r", "\t"} & set(text):
                    yield f"split {split}: pair {number} has the text {text!r}"
            if not pair.group:
                yield f"split {split}: pair {number} has no group"


@invariant("labels")
def labels_belong_to_words(subject: DatasetSubject) -> Iterator[str]:
    """Either no pair has labelled words, or every target word is the label of one word, in ascending order."""
    for split, corpus in subject.first.items():
        if len({pair.labelled is None for pair in corpus.pairs}) > 1:
            yield f"split {split}: some pairs have labelled words and others not"
        for number, pair in enumerate(corpus.pairs):
            problem = pair.mislabelled
            if problem is not None:
                yield f"split {split}: pair {number} {problem}"


@invariant("parts")
def only_own_splits_assign_parts(subject: DatasetSubject) -> Iterator[str]:
    """Only splits of the dataset, and separate files, assign parts: train, valid and test."""
    separate = subject.dataset.given_parts(subject.options)
    for split, corpus in subject.first.items():
        allowed = separate if split in COMPUTED_SPLITS else PARTS
        for part, count in Counter(pair.split for pair in corpus.pairs).items():
            if part is not None and part not in allowed:
                yield f"split {split}: {count} pairs are assigned to {part!r}"


@invariant("groups")
def no_group_is_in_two_parts(subject: DatasetSubject) -> Iterator[str]:
    """No group is in two parts."""
    for split, corpus in subject.first.items():
        parts: dict[str, set[str]] = {}
        for pair in corpus.pairs:
            parts.setdefault(pair.group, set()).add(str(pair.split))
        for group, in_parts in parts.items():
            if len(in_parts) > 1:
                yield f"split {split}: group {group!r} is in {' and '.join(sorted(in_parts))}"


@invariant("prepared")
def every_part_has_pairs(subject: DatasetSubject) -> Iterator[str]:
    """Every split has training, validation and test pairs."""
    defaults = {"normalise": subject.dataset.normalise, **subject.dataset.defaults.get("data", {})}
    for split, corpus in subject.first.items():
        free = sum(pair.split is None for pair in corpus.pairs)
        size = max(1, free // 10)
        fields = {**defaults, "valid": size, "test": size}
        config = DataConfig(dataset=subject.name, split=split, **fields)
        try:
            prepared = prepare_corpus(corpus, config)
        except HeadToHeadError as error:
            yield f"split {split}: {error}"
            continue
        for part in PARTS:
            if not len(prepared.splits[part]):
                yield f"split {split}: {part} has no pairs"


@invariant("cache-key")
def the_cache_key_is_stable(subject: DatasetSubject) -> Iterator[str]:
    """The cache key is the same while the data is unchanged."""
    with tempfile.TemporaryDirectory() as folder:
        for split in subject.dataset.splits:
            first = subject.dataset.cache_key(subject.options, split, Path(folder))
            second = subject.dataset.cache_key(subject.options, split, Path(folder))
            if first != second:
                yield f"split {split}: {first!r}, called again {second!r}"


DATASET_INVARIANTS = tuple(value for value in [*globals().values()] if isinstance(value, Invariant))
