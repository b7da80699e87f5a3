"""Words by id, in the four ways to give ids, and what becomes of words that have none.

``PAD``, ``UNK``, ``SOS`` and ``EOS`` are the ids of the standard layout alone; anything that must
hold for every layout asks the vocabulary, where each may be None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """Words by id.

    ``pieces`` says that they are parts of words, a new word marked by ▁. ``unknown`` says what
    ``encode`` makes of a word that is not there: <unk>, nothing, or an error.
    """

    words: list[str]
    pieces: bool = False
    unknown: Unknown = "token"

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def pad(self) -> int | None:
        """The id that fills short sentences up, or None."""
        return self._place(PAD_WORD)

    @cached_property
    def unk(self) -> int | None:
        """The id of words that are not there, or None."""
        return self._place(UNK_WORD)

    @cached_property
    def sos(self) -> int | None:
        """The id that stands before a sentence, or None."""
        return self._place(SOS_WORD)

    @cached_property
    def eos(self) -> int | None:
        """The id that stands behind a sentence, or None."""
        return self._place(EOS_WORD)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return ids; special tokens written in a text are unknown words.

        Raises:
            UndefinedError: For an unknown word, where the vocabulary refuses those.
        """
        known = self._ids
        if self.unknown == "token" and self.unk is not None:
            unk = self.unk
            return [known.get(word, unk) for word in words]
        if self.unknown == "drop":
            return [known[word] for word in words if word in known]
        return [known[word] if word in known else self._refuse(word) for word in words]

    def lacks(self, word: str) -> bool:
        """Tell whether a word has no id of its own."""
        return word not in self._ids

    def label(self, index: int) -> str:
        """Return the word of an id; the id itself where a row of a table belongs to no word."""
        return self.words[index] if index < len(self.words) else str(index)

    def decode(self, ids: Iterable[int], until_eos: bool = True) -> str:
        """Return the text; <pad>, <sos>, <eos> and ids without a word are left out."""
        silent = (self.pad, self.sos, self.eos)
        words = []
        for index in ids:
            if until_eos and index == self.eos:
                break
            if index not in silent and index < len(self.words):
                words.append(self.words[index])
        if self.pieces:
            return " ".join("".join(words).replace(WORD_START, " ").split())
        return " ".join(words)

    def bounded(self, ids: list[int], boundaries: Boundaries) -> list[int]:
        """Return ids with the boundary tokens around them.

        Raises:
            UndefinedError: If the vocabulary lacks one of them.
        """
        if boundaries == "none":
            return ids
        ended = [*ids, self._boundary(self.eos, EOS_WORD)]
        return ended if boundaries == "eos" else [self._boundary(self.sos, SOS_WORD), *ended]

    def count_words(self, ids: Iterable[int]) -> int:
        """Return how many of the ids are no boundary token."""
        return sum(index not in (self.sos, self.eos) for index in ids)

    @cached_property
    def _ids(self) -> dict[str, int]:
        specials = {self.pad, self.unk, self.sos, self.eos}
        return {word: index for index, word in enumerate(self.words) if index not in specials}

    def _place(self, word: str) -> int | None:
        return self.words.index(word) if word in self.words else None

    @staticmethod
    def _boundary(index: int | None, word: str) -> int:
        if index is None:
            raise UndefinedError(
                f"the vocabulary has no {word} to stand around a sentence; set "
                "data.source_boundaries or data.target_boundaries: none"
            )
        return index

    @staticmethod
    def _refuse(word: str) -> int:
        raise UndefinedError(
            f"the vocabulary has no word '{word}' and data.vocabulary.unknown refuses it; "
            "use other words, or unknown: drop, or token where there is an <unk>"
        )


def bounded_words(words: Iterable[str], boundaries: Boundaries) -> list[str]:
    """Return words with the boundary tokens around them, and special tokens of the text left out.

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
    """Count the words of training sentences; order by frequency, then alphabetically.

    Args:
        sentences: Words of each sentence.
        min_count: Rarer words are left out.
        max_size: Largest size, special tokens included.
        pieces: The words are parts of words, and these are all of them, seen or not.
        unknown: What becomes of other words.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    if pieces is not None:
        counts = Counter({piece: counts[piece] for piece in pieces})
        min_count = 0
    kept = [word for word, n in counts.items() if n >= min_count and word not in SPECIALS]
    kept.sort(key=lambda word: (-counts[word], word))
    words = [*SPECIALS, *kept]
    return Vocabulary(words[:max_size], pieces is not None, unknown)


def frequency_vocabulary(
    sentences: Iterable[Sequence[str]],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    pieces: Iterable[str] | None = None,
    unknown: Unknown = "token",
) -> Vocabulary:
    """Order words and boundary tokens by frequency, ties by first appearance.

    <pad> has the id 0, <unk> the id 1 where unknown words become it, and words follow (the
    notebooks architecture-en-de, from 1, and tatoeba-en-es, from 2).

    Args:
        sentences: Words of each training sentence, its boundary tokens counted as words.
        min_count: Rarer words are left out; boundary tokens never are.
        max_size: Largest size, special tokens included.
        pieces: The words are parts of words, and these are all of them, seen or not.
        unknown: What becomes of other words.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    if pieces is not None:
        counts.update({piece: 0 for piece in pieces if piece not in SPECIALS})
        min_count = 0
    front = [PAD_WORD, UNK_WORD] if unknown == "token" else [PAD_WORD]
    ordered = [word for word, n in counts.most_common() if n >= min_count or word in SPECIALS]
    if max_size is not None:
        ends = sum(word in counts for word in SPECIALS)
        plain = [word for word in ordered if word not in SPECIALS]
        kept = {*plain[: max(0, max_size - len(front) - ends)], *SPECIALS}
        ordered = [word for word in ordered if word in kept]
    return Vocabulary([*front, *ordered], pieces is not None, unknown)


def printed_vocabulary(table: Mapping[str, int], unknown: Unknown) -> Vocabulary:
    """Take a fixed table of words and ids; the special tokens are those it has.

    Raises:
        UndefinedError: If the ids are not 0, 1, 2 and so on, or unknown words should become an
            <unk> that the table lacks.
    """
    words = sorted(table, key=table.__getitem__)
    if [table[word] for word in words] != list(range(len(words))):
        raise UndefinedError(f"a printed vocabulary numbers its words from 0 to {len(words) - 1}")
    if unknown == "token" and UNK_WORD not in table:
        raise UndefinedError("the printed vocabulary has no <unk>; set data.vocabulary.unknown: drop or refuse")
    return Vocabulary(words, unknown=unknown)


def position_vocabulary(sentences: Sequence[list[str]], unknown: Unknown) -> Vocabulary:
    """Give each token of the only sentence its place in it, the last one if it is repeated.

    There is no <pad> (the notebook by-hand-en-fr).

    Args:
        sentences: Words of each training sentence, boundary tokens included.
        unknown: What becomes of other words.

    Raises:
        UndefinedError: If there are several sentences, or unknown words should become an <unk>.
    """
    if len(sentences) != 1:
        raise UndefinedError(
            f"data.vocabulary.ids: position is the place in the only pair, got {len(sentences)} "
            "training pairs; use ids: frequency"
        )
    if unknown == "token":
        raise UndefinedError("ids by position have no <unk>; set data.vocabulary.unknown: drop or refuse")
    return Vocabulary(sentences[0], unknown=unknown)
