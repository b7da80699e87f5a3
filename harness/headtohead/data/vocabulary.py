"""Vocabularies: four ways to assign ids to words, and three ways to treat unknown words.

``PAD``, ``UNK``, ``SOS`` and ``EOS`` are the ids of ``data.vocabulary.ids: standard`` only. Code for
all vocabularies uses the properties of `Vocabulary`, which can be None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from headtohead.errors import UndefinedError

PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<sos>", "<eos>")
PAD_WORD, UNK_WORD, SOS_WORD, EOS_WORD = SPECIALS
WORD_START = "▁"

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
            from headtohead.data.subwords import decode

            return decode(self.tokenizer, kept)
        words = [self.words[index] for index in kept]
        if self.pieces:
            return " ".join("".join(words).replace(WORD_START, " ").split())
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


def bounded_words(words: Iterable[str], boundaries: Boundaries) -> list[str]:
    """Remove special tokens from the words of a sentence, then add its boundary tokens.

    >>> bounded_words(["a", "<eos>", "b"], "sos-eos")
    ['<sos>', 'a', 'b', '<eos>']
    """
    plain = [word for word in words if word not in SPECIALS]
    if boundaries == "none":
        return plain
    return [*plain, EOS_WORD] if boundaries == "eos" else [SOS_WORD, *plain, EOS_WORD]


def build_vocabulary(
    sentences: Iterable[Sequence[str]],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    pieces: Iterable[str] | None = None,
    unknown: Unknown = "token",
) -> Vocabulary:
    """Build the standard vocabulary: special tokens, then words by frequency, ties alphabetically.

    Args:
        sentences: Words of each training sentence.
        min_count: Minimum frequency of a word.
        max_size: Maximum size, special tokens included.
        pieces: All subwords, including those that do not occur; None for a vocabulary of words.
        unknown: Treatment of unknown words.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    if pieces is not None:
        counts = Counter({piece: counts[piece] for piece in pieces})
        min_count = 0
    frequent = [word for word, count in counts.items() if count >= min_count and word not in SPECIALS]
    frequent.sort(key=lambda word: (-counts[word], word))
    words = [*SPECIALS, *frequent]
    return Vocabulary(words[:max_size], pieces is not None, unknown)


def frequency_vocabulary(
    sentences: Iterable[Sequence[str]],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    pieces: Iterable[str] | None = None,
    unknown: Unknown = "token",
) -> Vocabulary:
    """Build a vocabulary of words and boundary tokens by frequency, ties by first appearance.

    <pad> has the id 0. <unk> has the id 1 if ``unknown`` is ``token`` (as in the notebook
    tatoeba-en-es), otherwise the words start at 1 (as in architecture-en-de).

    Args:
        sentences: Words of each training sentence, boundary tokens included.
        min_count: Minimum frequency of a word; boundary tokens are always included.
        max_size: Maximum size, special tokens included.
        pieces: All subwords, including those that do not occur; None for a vocabulary of words.
        unknown: Treatment of unknown words.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    if pieces is not None:
        counts.update({piece: 0 for piece in pieces if piece not in SPECIALS})
        min_count = 0
    front = [PAD_WORD, UNK_WORD] if unknown == "token" else [PAD_WORD]
    ordered = [word for word, count in counts.most_common() if count >= min_count or word in SPECIALS]
    if max_size is not None:
        num_boundaries = sum(word in counts for word in SPECIALS)
        plain = [word for word in ordered if word not in SPECIALS]
        included = {*plain[: max(0, max_size - len(front) - num_boundaries)], *SPECIALS}
        ordered = [word for word in ordered if word in included]
    return Vocabulary([*front, *ordered], pieces is not None, unknown)


def printed_vocabulary(table: Mapping[str, int], unknown: Unknown) -> Vocabulary:
    """Build a vocabulary from a fixed table of words and ids.

    Raises:
        UndefinedError: If the ids are not 0, 1, 2 and so on, or ``unknown`` is ``token`` and the
            table has no <unk>.
    """
    words = sorted(table, key=table.__getitem__)
    if [table[word] for word in words] != list(range(len(words))):
        raise UndefinedError(f"a printed vocabulary must have the ids 0 to {len(words) - 1}; correct the dataset")
    if unknown == "token" and UNK_WORD not in table:
        raise UndefinedError("the printed vocabulary has no <unk>; set data.vocabulary.unknown: drop or refuse")
    return Vocabulary(words, unknown=unknown)


def position_vocabulary(sentences: Sequence[list[str]], unknown: Unknown) -> Vocabulary:
    """Number the tokens of the only sentence by position; a repeated token has its last position.

    There is no <pad> (as in the notebook by-hand-en-fr).

    Args:
        sentences: Words of the only training sentence, boundary tokens included.
        unknown: Treatment of unknown words.

    Raises:
        UndefinedError: If there are several sentences, or ``unknown`` is ``token``.
    """
    if len(sentences) != 1:
        raise UndefinedError(
            f"data.vocabulary.ids: position requires a single training pair, got {len(sentences)} "
            "training pairs; use ids: frequency"
        )
    if unknown == "token":
        raise UndefinedError("ids by position have no <unk>; set data.vocabulary.unknown: drop or refuse")
    return Vocabulary(sentences[0], unknown=unknown)
