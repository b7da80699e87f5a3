"""The words of a side and their ids, and three ways to treat unknown words.

``PAD``, ``UNK``, ``SOS`` and ``EOS`` are the ids of ``data.vocabulary.ids: standard`` only. Code for
all vocabularies uses the properties of `Vocabulary`, which can be None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from headtohead.data import subwords
from headtohead.errors import UndefinedError

PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", subwords.UNKNOWN, "<sos>", "<eos>")
PAD_WORD, UNK_WORD, SOS_WORD, EOS_WORD = SPECIALS

Boundaries = Literal["none", "eos", "sos-eos"]
Unknown = Literal["token", "drop", "refuse"]


@dataclass(frozen=True)
class Vocabulary:
    """Words in the order of their ids.

    ``pieces`` marks a vocabulary of subwords, in which ▁ marks the start of a word. ``tokenizer`` is
    the text of a ``tokenizer.json``, which then decodes ids. ``unknown`` decides how ``encode`` treats
    a word without an id: as <unk> (``token``), not at all (``drop``), or as an error (``refuse``).
    """

    words: list[str]
    pieces: bool = False
    unknown: Unknown = "token"
    tokenizer: str | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def pad(self) -> int | None:
        """The id of padding, or None."""
        return self._index(PAD_WORD)

    @cached_property
    def unk(self) -> int | None:
        """The id of unknown words, or None."""
        return self._index(UNK_WORD)

    @cached_property
    def sos(self) -> int | None:
        """The id of the start of a sentence, or None."""
        return self._index(SOS_WORD)

    @cached_property
    def eos(self) -> int | None:
        """The id of the end of a sentence, or None."""
        return self._index(EOS_WORD)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return ids; special tokens written in a text are unknown words.

        Raises:
            UndefinedError: For an unknown word, if ``unknown`` is ``refuse``.
        """
        ids = self._ids
        if self.unknown == "token" and self.unk is not None:
            unk = self.unk
            return [ids.get(word, unk) for word in words]
        if self.unknown == "drop":
            return [ids[word] for word in words if word in ids]
        return [ids[word] if word in ids else self._refuse(word) for word in words]

    def __contains__(self, word: object) -> bool:
        """Return whether a word has an id; special tokens count as unknown words."""
        return word in self._ids

    def label(self, index: int) -> str:
        """Return the word of an id, or the id as text if the embedding has more rows than there are words."""
        return self.words[index] if index < len(self.words) else str(index)

    def decode(self, ids: Iterable[int], until_eos: bool = True) -> str:
        """Return the text without <pad>, <sos>, <eos> and ids without a word."""
        skipped = (self.pad, self.sos, self.eos)
        kept = []
        for index in ids:
            if until_eos and index == self.eos:
                break
            if index not in skipped and index < len(self.words):
                kept.append(int(index))
        if self.tokenizer is not None:
            return subwords.decode(self.tokenizer, kept)
        words = [self.words[index] for index in kept]
        if self.pieces:
            return " ".join("".join(words).replace(subwords.WORD_START, " ").split())
        return " ".join(words)

    def bounded(self, ids: list[int], boundaries: Boundaries) -> list[int]:
        """Add boundary tokens to the ids of a sentence.

        Raises:
            UndefinedError: If the vocabulary has no such boundary token.
        """
        if boundaries == "none":
            return ids
        ended = [*ids, self._boundary(self.eos, EOS_WORD)]
        return ended if boundaries == "eos" else [self._boundary(self.sos, SOS_WORD), *ended]

    def count_words(self, ids: Iterable[int]) -> int:
        """Return the number of ids that are not boundary tokens."""
        return sum(index not in (self.sos, self.eos) for index in ids)

    @cached_property
    def _ids(self) -> dict[str, int]:
        specials = {self.pad, self.unk, self.sos, self.eos}
        return {word: index for index, word in enumerate(self.words) if index not in specials}

    def _index(self, word: str) -> int | None:
        return self.words.index(word) if word in self.words else None

    @staticmethod
    def _boundary(index: int | None, word: str) -> int:
        if index is None:
            raise UndefinedError(
                f"the vocabulary has no boundary token {word}; set "
                "data.source_boundaries or data.target_boundaries to none"
            )
        return index

    @staticmethod
    def _refuse(word: str) -> int:
        raise UndefinedError(
            f"the vocabulary has no word '{word}', and data.vocabulary.unknown is refuse; "
            "use other words, or set data.vocabulary.unknown to drop, or to token if there is an <unk>"
        )
