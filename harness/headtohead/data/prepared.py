"""Prepared data: splits as token ids and text, vocabularies, and the record of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headtohead.data import subwords
from headtohead.data.normalise import NORMALISERS
from headtohead.data.vocabulary import Boundaries, Vocabulary
from headtohead.schema.run_config import DataConfig

Ids = NDArray[np.int32]
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True)
class Split:
    """One part of the corpus; ids include the boundary tokens of the configuration.

    ``references`` holds, for each pair, its own translation followed by all other translations of
    the source sentence in the corpus; in train only its own.

    A sequence with labels has no source ids. ``target`` has the ids of the sequence and ``labels`` the id that each of
    them predicts, or `IGNORE_INDEX`. As text, ``source_text`` is the sequence with its labelled words in brackets, and
    ``target_text`` the labels. Without ``labels``, every target token predicts the next one.
    """

    source: list[Ids]
    target: list[Ids]
    source_text: list[str]
    target_text: list[str]
    references: list[tuple[str, ...]]
    labels: list[Ids] | None = None

    @property
    def measured(self) -> list[Ids]:
        """The ids whose number is the length of an example: sources, or targets where no example has a source."""
        return self.source if any(map(len, self.source)) else self.target

    def __len__(self) -> int:
        return len(self.source)

    def ids(self, side: Side) -> list[Ids]:
        """Return the ids of each sentence of a side."""
        return self.source if side == "source" else self.target


@dataclass(frozen=True)
class Tokeniser:
    """Tokeniser of one side: a normalisation, and the merges of subwords if there are any.

    ``boundaries`` selects the boundary tokens. ``max_tokens`` truncates ids, boundary tokens
    included.
    """

    normalise: str
    subwords: str | None = None
    boundaries: Boundaries = "none"
    max_tokens: int | None = None

    def words(self, text: str) -> list[str]:
        """Return the words or subwords of a raw text."""
        return self.split(NORMALISERS[self.normalise](text))

    def split(self, normalised: str) -> list[str]:
        """Return the words or subwords of a normalised text."""
        if self.subwords is None:
            return normalised.split()
        if self.subwords == subwords.CHARACTERS:
            return list(normalised.replace(" ", subwords.WORD_START))
        tokens: list[str] = subwords.load_tokenizer(self.subwords).encode(normalised, add_special_tokens=False).tokens
        return tokens

    def ids(self, words: Iterable[str], vocabulary: Vocabulary) -> list[int]:
        """Return the ids of words, boundary tokens included, truncated to ``max_tokens``."""
        return vocabulary.encode(words, self.boundaries)[: self.max_tokens]


@dataclass(frozen=True)
class PreparedData:
    """A corpus prepared for training; ``record`` is the ``data`` block of run records."""

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    splits: Mapping[str, Split]
    record: dict[str, Any]
    data_hash: str
    tokenisers: Mapping[Side, Tokeniser]

    @cached_property
    def longest_target(self) -> int:
        """Number of tokens of the longest training target, boundary tokens included."""
        return int(self.train_lengths[1].max())

    @cached_property
    def train_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of tokens of every training source and target, boundary tokens included."""
        train = self.splits["train"]
        return np.array([len(ids) for ids in train.source]), np.array([len(ids) for ids in train.target])

    def tokenise(self, text: str, side: Side) -> list[int]:
        """Return the ids of a raw text, with the boundary tokens and truncation of the splits."""
        vocabulary, tokeniser = self.vocabulary(side), self.tokenisers[side]
        return tokeniser.ids(tokeniser.words(text), vocabulary)

    def vocabulary(self, side: Side) -> Vocabulary:
        """Return the vocabulary of a side."""
        return self.source_vocabulary if side == "source" else self.target_vocabulary


def data_hash(
    splits: Mapping[str, Split],
    vocabularies: Mapping[Side, Vocabulary],
    tokenisers: Mapping[Side, Tokeniser],
    reads: str = "",
) -> str:
    """Return the sha256 of everything a result can depend on: vocabularies, ids and texts.

    ``reads`` stands for the declared files and variables of the dataset: its metrics may depend on them.
    """
    digest = hashlib.sha256()

    def add(*texts: str) -> None:
        for text in texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\x1e")
        digest.update(b"\x1d")

    for side in SIDES:
        add(*vocabularies[side].words)
        add(tokenisers[side].normalise, tokenisers[side].subwords or "")
    for part in sorted(splits):
        split = splits[part]
        add(part, *split.source_text)
        add(*split.target_text)
        add(*("\x1f".join(accepted) for accepted in split.references))
        for ids in (*split.source, *split.target, *(split.labels or ())):
            digest.update(ids.tobytes() + b"\x1d")
    if reads:
        add(reads)
    return digest.hexdigest()


def tokenisers_of(config: DataConfig, merges: Mapping[Side, str] | None = None) -> dict[Side, Tokeniser]:
    """Return the tokeniser of each side of a configuration; ``merges`` are the subwords, if there are any."""
    boundaries: dict[Side, Boundaries] = {"source": config.source_boundaries, "target": config.target_boundaries}
    return {
        side: Tokeniser(config.normalise, (merges or {}).get(side), boundaries[side], config.truncate_tokens)
        for side in SIDES
    }
