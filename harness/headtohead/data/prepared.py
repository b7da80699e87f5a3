"""What training gets: splits as ids and text, vocabularies, and the record of the data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headtohead.data.normalise import normaliser
from headtohead.data.vocabulary import Boundaries, Vocabulary

Ids = NDArray[np.int32]
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
USUAL_BOUNDARIES: dict[Side, Boundaries] = {"source": "eos", "target": "sos-eos"}


@dataclass(frozen=True)
class Split:
    """One part, boundary tokens included in the ids, as the configuration asks for them.

    ``references`` holds, for each pair, its own translation first and then every other translation
    of the same source sentence in the whole corpus; in train only its own.
    """

    source: list[Ids]
    target: list[Ids]
    source_text: list[str]
    target_text: list[str]
    references: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Tokeniser:
    """How the text of one side becomes tokens: a normalisation, and merges if subwords.

    ``boundaries`` stand around the words; ``cut`` is the number of tokens kept, boundary tokens
    included.
    """

    normalise: str
    subwords: str | None = None
    boundaries: Boundaries = "none"
    cut: int | None = None

    def words(self, text: str) -> list[str]:
        """Return the words, or the pieces of words, of a raw text."""
        return self.split(normaliser(self.normalise)(text))

    def split(self, normalised: str) -> list[str]:
        """Return the words, or the pieces of words, of a normalised text."""
        if self.subwords is None:
            return normalised.split()
        from headtohead.data.subwords import pieces

        return pieces(self.subwords, normalised)

    def ids(self, words: Iterable[str], vocabulary: Vocabulary) -> list[int]:
        """Return the ids of words, boundary tokens included."""
        return vocabulary.bounded(vocabulary.encode(words), self.boundaries)[: self.cut]


@dataclass(frozen=True)
class PreparedData:
    """A corpus, ready to train on; ``record`` is the ``data`` block of run records."""

    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    splits: Mapping[str, Split]
    record: dict[str, Any]
    data_hash: str
    tokenisers: Mapping[Side, Tokeniser]

    @cached_property
    def longest_target(self) -> int:
        """Tokens of the longest training target, boundary tokens included."""
        return max(len(ids) for ids in self.splits["train"].target)

    def tokenise(self, text: str, side: Side) -> list[int]:
        """Return the ids of a raw text as the splits hold them, boundary tokens included."""
        tokeniser = self.tokenisers[side]
        return tokeniser.ids(tokeniser.words(text), self.vocabulary(side))

    def vocabulary(self, side: Side) -> Vocabulary:
        """Return the vocabulary of a side."""
        return self.source_vocabulary if side == "source" else self.target_vocabulary


def data_hash(
    splits: Mapping[str, Split], vocabularies: Mapping[Side, Vocabulary], tokenisers: Mapping[Side, Tokeniser]
) -> str:
    """Return a sha256 over everything that a result can depend on: words, ids and texts."""
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
        for ids in (*split.source, *split.target):
            digest.update(ids.tobytes() + b"\x1d")
    return digest.hexdigest()
