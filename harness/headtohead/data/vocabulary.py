"""Word lists with four special tokens in front, and the ids they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<sos>", "<eos>")
WORD_START = "▁"


@dataclass(frozen=True)
class Vocabulary:
    """Words by id. ``pieces`` says that they are parts of words, a new word marked by ▁."""

    words: list[str]
    pieces: bool = False

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return ids; unknown words, and special tokens written in a text, become <unk>."""
        return [self._ids.get(word, UNK) for word in words]

    def decode(self, ids: Iterable[int], until_eos: bool = True) -> str:
        """Return the text; <pad>, <sos> and <eos> are left out, <unk> is shown."""
        words = []
        for index in ids:
            if index == EOS and until_eos:
                break
            if index not in (PAD, SOS, EOS):
                words.append(self.words[index])
        if self.pieces:
            return " ".join("".join(words).replace(WORD_START, " ").split())
        return " ".join(words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        start = len(SPECIALS)
        return {word: start + index for index, word in enumerate(self.words[start:])}


def build_vocabulary(
    sentences: Iterable[Sequence[str]],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    pieces: Iterable[str] | None = None,
) -> Vocabulary:
    """Count the words of training sentences; order by frequency, then alphabetically.

    Args:
        sentences: Words of each sentence.
        min_count: Rarer words are left out.
        max_size: Largest size, special tokens included.
        pieces: The words are parts of words, and these are all of them, seen or not.
    """
    counts = Counter(word for sentence in sentences for word in sentence)
    if pieces is not None:
        counts = Counter({piece: counts[piece] for piece in pieces})
        min_count = 0
    kept = [word for word, n in counts.items() if n >= min_count and word not in SPECIALS]
    kept.sort(key=lambda word: (-counts[word], word))
    words = [*SPECIALS, *kept]
    return Vocabulary(words[:max_size], pieces is not None)
