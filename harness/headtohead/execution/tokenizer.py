"""The tokenizer of a loaded run: text to ids and back, as in its training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headtohead.data.prepared import SIDES, Side
from headtohead.errors import HeadToHeadError, nearest

if TYPE_CHECKING:
    from headtohead.data import PreparedData
    from headtohead.data.vocabulary import Vocabulary


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Normalisation, tokens and vocabularies of a run, for ``side`` "source" or "target".

    Both sides have the same vocabulary with ``data.vocabulary.shared``.
    """

    data: PreparedData

    def encode(self, text: str, side: Side = "source") -> list[int]:
        """Return the ids of a raw text, with the boundary tokens and the truncation of training.

        Raises:
            HeadToHeadError: If the vocabulary refuses a word (``data.vocabulary.unknown: refuse``).
        """
        self._vocabulary(side)
        return self.data.tokenise(text, side)

    def decode(self, ids: Iterable[int], side: Side = "target") -> str:
        """Return the normalised text of ids up to the first <eos>, without <pad> and <sos>."""
        return self._vocabulary(side).decode(map(int, ids))

    def tokens(self, ids: Iterable[int], side: Side = "source") -> list[str]:
        """Return the token of each id, special tokens included; an id without a token is returned as its digits."""
        return [self._vocabulary(side).label(int(index)) for index in ids]

    def vocab_size(self, side: Side = "source") -> int:
        """Return the number of tokens of a side, special tokens included."""
        return len(self._vocabulary(side))

    def special_ids(self, side: Side = "source") -> dict[str, int | None]:
        """Return the ids of "pad", "unk", "sos" and "eos"; None for a token that the vocabulary lacks."""
        vocabulary = self._vocabulary(side)
        return {"pad": vocabulary.pad, "unk": vocabulary.unk, "sos": vocabulary.sos, "eos": vocabulary.eos}

    def __repr__(self) -> str:
        return f"Tokenizer(source={self.vocab_size('source')} tokens, target={self.vocab_size('target')} tokens)"

    def _vocabulary(self, side: Side) -> Vocabulary:
        if side not in SIDES:
            raise HeadToHeadError(f"unknown side '{side}'{nearest(side, SIDES)}")
        return self.data.vocabulary(side)
