"""The words of a side and their ids, and three ways to treat unknown words.

``PAD``, ``UNK``, ``SOS`` and ``EOS`` are the ids of ``data.vocabulary.ids: standard`` only. Code for
all vocabularies uses the properties of `Vocabulary`, which can be None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from headtohead.data import subwords
from headtohead.errors import UndefinedError

PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", subwords.UNKNOWN, "<sos>", "<eos>")
PAD_WORD, UNK_WORD, SOS_WORD, EOS_WORD = SPECIALS

IGNORE_INDEX = -100
"""Label of positions without a label; no token of any vocabulary has this id."""

Boundaries = Literal["none", "eos", "sos-eos"]
Unknown = Literal["token", "drop", "refuse"]
BOUNDARIES: dict[Boundaries, tuple[list[str], list[str]]] = {
    "none": ([], []),
    "eos": ([], [EOS_WORD]),
    "sos-eos": ([SOS_WORD], [EOS_WORD]),
}
"""Boundary tokens before and after a sentence."""


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their ids.

    ``unknown`` decides how ``encode`` treats a word without an id: as <unk> (``token``), not at all
    (``drop``), or as an error (``refuse``).
    """

    words: list[str]
    unknown: Unknown = "token"

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def pad(self) -> int | None:
        """The id of padding, or None."""
        return self._specials.get(PAD_WORD)

    @cached_property
    def unk(self) -> int | None:
        """The id of unknown words, or None."""
        return self._specials.get(UNK_WORD)

    @cached_property
    def sos(self) -> int | None:
        """The id of the start of a sentence, or None."""
        return self._specials.get(SOS_WORD)

    @cached_property
    def eos(self) -> int | None:
        """The id of the end of a sentence, or None."""
        return self._specials.get(EOS_WORD)

    def encode(self, words: Iterable[str], boundaries: Boundaries = "none") -> list[int]:
        """Return ids with boundary tokens; special tokens written in a text are unknown words.

        Raises:
            UndefinedError: For an unknown word, if ``unknown`` is ``refuse``, or if the vocabulary has no such boundary
                token.
        """
        ids: list[int] = []
        for word in words:
            if word in self._ids:
                ids.append(self._ids[word])
            elif self.unknown == "token" and self.unk is not None:
                ids.append(self.unk)
            elif self.unknown != "drop":
                raise UndefinedError(
                    f"the vocabulary has no word '{word}', and data.vocabulary.unknown is refuse; "
                    "use other words, or set data.vocabulary.unknown to drop, or to token if there is an <unk>"
                )
        before, after = BOUNDARIES[boundaries]
        for word in (*after, *before):
            if word not in self._specials:
                raise UndefinedError(
                    f"the vocabulary has no boundary token {word}; set data.source_boundaries or "
                    "data.target_boundaries to none"
                )
        first = [self._specials[word] for word in before]
        last = [self._specials[word] for word in after]
        return [*first, *ids, *last]

    def __contains__(self, word: object) -> bool:
        """Return whether a word has an id; special tokens count as unknown words."""
        return word in self._ids

    def label(self, index: int) -> str:
        """Return the word of an id, or the id as text if the embedding has more rows than there are words."""
        if index < len(self.words):
            return self.words[index]
        return str(index)

    def without_boundaries(self, ids: Iterable[int]) -> list[int]:
        """Return ids without <pad>, <sos>, <eos> and ids without a word."""
        skipped = (self.pad, self.sos, self.eos)
        kept = []
        for index in ids:
            if index not in skipped and index < len(self.words):
                kept.append(int(index))
        return kept

    def count_words(self, ids: Iterable[int]) -> int:
        """Return the number of ids that are not boundary tokens."""
        boundaries = (self.sos, self.eos)
        return sum(index not in boundaries for index in ids)

    @cached_property
    def _specials(self) -> dict[str, int]:
        return {word: self.words.index(word) for word in SPECIALS if word in self.words}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words) if word not in SPECIALS}
