"""Prepared data: splits as token ids and text, vocabularies, and the record of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.data.splits import shuffled
from headtohead.data.tokeniser import SIDES, Side, Tokeniser
from headtohead.data.vocabulary import Vocabulary

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Split:
    """One part of the corpus; ids include the boundary tokens of the configuration.

    Texts are prepared texts (see `headtohead.data.tokeniser`).

    ``references`` holds, for each pair, its own translation followed by all other translations of
    the source sentence in the corpus; in train only its own.

    ``groups`` holds, for each pair, the number of its group in this part, from 0. The pairs of a group may depend on
    each other: the blocks of a passage of a text, and sentences that a split keeps together. With ``data.split: row``
    every pair is a group.

    A sequence with labels has no source ids. ``target`` has the ids of the sequence and ``labels`` the id that each of
    them predicts, or `IGNORE_INDEX`. As text, ``source_text`` is the sequence with its labelled words in brackets, and
    ``target_text`` the labels. Without ``labels``, every target token predicts the next one.
    """

    source: list[Ids]
    target: list[Ids]
    source_text: list[str]
    target_text: list[str]
    references: list[tuple[str, ...]]
    groups: list[int]
    labels: list[Ids] | None = None

    @property
    def measured(self) -> list[Ids]:
        """The ids whose number is the length of an example: sources, or targets where no example has a source."""
        has_sources = any(len(ids) for ids in self.source)
        return self.source if has_sources else self.target

    def __len__(self) -> int:
        return len(self.source)

    def distinct_sources(self, limit: int | None) -> list[int]:
        """Return the first row of each distinct source, or every row without a source, in order.

        With a ``limit``, return a random sample of them, always the same: the first rows of a sorted file are its
        shortest.
        """
        first: dict[str | int, int] = {}
        for row, text in enumerate(self.source_text):
            first.setdefault(text or row, row)
        rows = list(first.values())
        if limit is None:
            return rows
        chosen = shuffled(len(rows), 0)[:limit]
        return [rows[index] for index in sorted(chosen)]

    def ids(self, side: Side) -> list[Ids]:
        """Return the ids of each sentence of a side."""
        return self.source if side == "source" else self.target

    def examples_hash(self, rows: Sequence[int]) -> str:
        """Return the sha256 of the texts and the groups of all pairs, and of the numbers of the pairs with outputs.

        Runs with an equal hash have values of the same examples, also if their vocabularies or training parts differ.
        """
        digest = hashlib.sha256()
        for texts in (self.source_text, self.target_text):
            _add_texts(digest, texts)
        _add_texts(digest, map(str, self.groups))
        _add_texts(digest, map(str, rows))
        return digest.hexdigest()


@dataclass(frozen=True)
class PreparedData:
    """A corpus prepared for training; ``record`` is the ``data`` block of run records."""

    tokenisers: Mapping[Side, Tokeniser]
    splits: Mapping[str, Split]
    record: dict[str, Any]
    data_hash: str

    @property
    def source_vocabulary(self) -> Vocabulary:
        """The vocabulary of the sources."""
        return self.tokenisers["source"].vocabulary

    @property
    def target_vocabulary(self) -> Vocabulary:
        """The vocabulary of the targets."""
        return self.tokenisers["target"].vocabulary

    @property
    def has_sources(self) -> bool:
        """Whether the examples have sources; a text and a sequence with labels have none."""
        longest = self.record.get("longest") or {}  # imported checkpoints have none
        return bool(longest.get("source", 1))

    def texts(self, source: str, target: str | None) -> tuple[str, str | None]:
        """Return the texts of both sides of an example; without sources, a single text is that of the target."""
        if self.has_sources:
            return source, target
        return "", target or source

    @cached_property
    def longest_target(self) -> int:
        """Number of tokens of the longest training target, boundary tokens included."""
        return int(self.train_lengths[1].max())

    @cached_property
    def train_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of tokens of every training source and target, boundary tokens included."""
        train = self.splits["train"]
        source_lengths = [len(ids) for ids in train.source]
        target_lengths = [len(ids) for ids in train.target]
        return np.array(source_lengths), np.array(target_lengths)

    def tokenise(self, text: str, side: Side) -> list[int]:
        """Return the ids of a raw text, with the boundary tokens and truncation of the splits."""
        return self.tokenisers[side].encode(text)

    def decode(self, ids: Iterable[int], side: Side = "target") -> str:
        """Return the text of ids, without padding, boundary tokens and ids without a word."""
        return self.tokenisers[side].decode(ids)

    def vocabulary(self, side: Side) -> Vocabulary:
        """Return the vocabulary of a side."""
        return self.tokenisers[side].vocabulary


def data_hash(
    splits: Mapping[str, Split], tokenisers: Mapping[Side, Tokeniser], reads: str = ""
) -> str:
    """Return the sha256 of everything a result can depend on: vocabularies, ids, texts and groups.

    ``reads`` stands for the declared files and variables of the dataset: its metrics may depend on them.
    """
    digest = hashlib.sha256()
    for side in SIDES:
        unit = tokenisers[side].unit
        _add_texts(digest, tokenisers[side].vocabulary.words)
        rules = "characters" if unit.name == "character" else unit.subwords
        _add_texts(digest, [unit.normalise, rules or ""])
    for part in sorted(splits):
        split = splits[part]
        _add_texts(digest, [part, *split.source_text])
        _add_texts(digest, split.target_text)
        references = ["\x1f".join(accepted) for accepted in split.references]
        _add_texts(digest, references)
        _add_texts(digest, map(str, split.groups))
        for ids in (*split.source, *split.target, *(split.labels or ())):
            digest.update(ids.tobytes() + b"\x1d")
    if reads:
        _add_texts(digest, [reads])
    return digest.hexdigest()


def _add_texts(digest: hashlib._Hash, texts: Iterable[str]) -> None:
    """Add texts to a hash, so that other divisions into texts give another hash."""
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\x1e")
    digest.update(b"\x1d")
