"""Tokenisers: the only conversion of text to ids and back, for training and for every use of a trained model.

A raw text is what people write and read. A prepared text is a text of a `Split`: a normalised sentence, or the tokens
of a block of text in the alphabet of bytes, separated by spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headtohead.data import byte_alphabet, subwords
from headtohead.data.normalise import NORMALISERS
from headtohead.data.vocabulary import Boundaries, Vocabulary
from headtohead.plugins.dataset import TextUnit
from headtohead.schema.run_config import DataConfig

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

PairUnit = Literal["word", "character", "subword", "file"]
"""What a token of a sentence is; ``file``: a token of ``data.vocabulary.file``."""
TEXT_UNITS: tuple[str, ...] = get_args(TextUnit)


@dataclass(frozen=True)
class Unit:
    """What a token of a side is: how text becomes tokens, and tokens become text.

    ``normalise`` is the normalisation of sentences; a text is kept as it is. ``subwords`` is the text of a
    ``tokenizer.json``, of the units ``subword`` and ``file``.
    """

    name: PairUnit | TextUnit = "word"
    normalise: str = "none"
    subwords: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether the tokens are those of a text in the alphabet of bytes."""
        return self.name in TEXT_UNITS

    def tokens(self, text: str, vocabulary: Sequence[str] = ()) -> list[str]:
        """Return the tokens of a raw text; ``vocabulary`` has the words in the order of their ids."""
        if self.is_text:
            return byte_alphabet.text_tokens(text, self.name, vocabulary)  # type: ignore[arg-type]
        return self.split(NORMALISERS[self.normalise](text))

    def split(self, prepared: str) -> list[str]:
        """Return the tokens of a prepared text."""
        if self.name == "character":
            return list(prepared.replace(" ", subwords.WORD_START))
        if self.subwords is not None:
            encoding = subwords.load_tokenizer(self.subwords).encode(
                prepared, add_special_tokens=False
            )
            tokens: list[str] = encoding.tokens
            return tokens
        return prepared.split()

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens."""
        if self.name == "text-number":
            return byte_alphabet.numbers(tokens)
        if self.is_text:
            return byte_alphabet.text_of(tokens)
        if self.name in ("character", "subword"):
            return " ".join("".join(tokens).replace(subwords.WORD_START, " ").split())
        return " ".join(tokens)

    def plain_text(self, prepared: str) -> str:
        """Return a prepared text as people read it."""
        return self.join(prepared.split()) if self.is_text else prepared


@dataclass(frozen=True)
class Tokeniser:
    """Tokeniser of one side: its unit and its vocabulary, and the boundary tokens and truncation of training.

    ``max_tokens`` is the largest number of ids of a sentence, boundary tokens included.
    """

    unit: Unit
    vocabulary: Vocabulary
    boundaries: Boundaries = "none"
    max_tokens: int | None = None

    def encode(self, text: str) -> list[int]:
        """Return the ids of a raw text as in training, with boundary tokens and truncation."""
        return self.ids(self.tokens(text))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a raw text, without boundary tokens."""
        return self.unit.tokens(text, self.vocabulary.words)

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens, with boundary tokens, truncated to ``max_tokens``."""
        return self.vocabulary.encode(tokens, self.boundaries)[: self.max_tokens]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids without <pad>, <sos>, <eos> and ids without a word."""
        kept = self.vocabulary.without_boundaries(ids)
        if self.unit.name == "file":
            text = subwords.load_tokenizer(str(self.unit.subwords)).decode(
                kept, skip_special_tokens=False
            )
            return " ".join(text.split())
        return self.unit.join([self.vocabulary.words[index] for index in kept])

    def prepared(self, ids: Iterable[int]) -> str:
        """Return the prepared text of ids, to compare with the texts of a split."""
        if not self.unit.is_text:
            return self.decode(ids)
        kept = self.vocabulary.without_boundaries(ids)
        return " ".join(self.vocabulary.words[index] for index in kept)

    def unknown(self, text: str) -> list[str]:
        """Return the different tokens of a raw text that the vocabulary lacks, as people read them."""
        tokens = dict.fromkeys(token for token in self.tokens(text) if token not in self.vocabulary)
        return [self.unit.plain_text(token) for token in tokens]

    def beginning(self, text: str, most: int) -> str:
        """Return the beginning of a text, of at most ``most`` tokens.

        Incomplete characters at the end are removed. Subwords of the beginning can differ from those of the whole text.
        """
        tokens = self.tokens(text)
        for count in range(min(most, len(tokens)), 0, -1):
            shorter = self.unit.join(tokens[:count]).rstrip(byte_alphabet.INCOMPLETE)
            if len(self.tokens(shorter)) <= most:
                return shorter
        return ""


def units_of(
    config: DataConfig,
    subwords_of: Mapping[Side, str] | None = None,
    text_unit: TextUnit | None = None,
) -> dict[Side, Unit]:
    """Return the unit of each side.

    Args:
        config: The ``data`` section.
        subwords_of: The ``tokenizer.json`` of each side, learned or read from a file.
        text_unit: The unit that the corpus declares.
    """
    name: PairUnit | TextUnit = config.tokens
    if config.vocabulary.file is not None:
        name = "file"
    if text_unit is not None:
        name = text_unit
    subwords_of = subwords_of or {}
    return {side: Unit(name, config.normalise, subwords_of.get(side)) for side in SIDES}


def boundaries_of(config: DataConfig) -> dict[Side, Boundaries]:
    """Return the boundary tokens of each side."""
    return {"source": config.source_boundaries, "target": config.target_boundaries}


def tokenisers_of(
    config: DataConfig, units: Mapping[Side, Unit], vocabularies: Mapping[Side, Vocabulary]
) -> dict[Side, Tokeniser]:
    """Return the tokeniser of each side."""
    boundaries = boundaries_of(config)
    return {
        side: Tokeniser(units[side], vocabularies[side], boundaries[side], config.truncate_tokens)
        for side in SIDES
    }
