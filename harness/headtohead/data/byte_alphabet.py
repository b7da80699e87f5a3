"""The alphabet of bytes of GPT-2, in which the tokens of a text are written, and the units of a text.

In the alphabet, every byte is one printable character: a space is ``Ġ``, a line feed ``Ċ``, and the number of bytes of
a token is its length. A token without a text, of a file of ids, is its number after ``№``, which the alphabet lacks.

Paper: A. Radford et al. "Language Models are Unsupervised Multitask Learners", 2019, section 2.2.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import TextUnit

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
ALPHABET = {byte: chr(byte) for byte in PRINTABLE}
"""The character of each byte."""
ALPHABET.update((byte, chr(256 + number)) for number, byte in enumerate(OTHERS))
BYTES = {character: byte for byte, character in ALPHABET.items()}
"""The byte of each character."""
NUMBER = "№"
"""Start of a token without a text, which its id follows."""

INCOMPLETE = "\ufffd"
"""The replacement of a character whose bytes are incomplete, as at the ends of a block of bytes."""

MULTIBYTE_STARTS = (0xC0, 0xE0, 0xF0)
"""Smallest first bytes of UTF-8 characters of two, three and four bytes."""


def written(text: str) -> str:
    """Return a text in the alphabet; a lone surrogate, which no file has, counts as three bytes."""
    # In latin-1, the number of each character is its byte.
    return text.encode("utf-8", "surrogatepass").decode("latin-1").translate(ALPHABET)


def text_of(tokens: Sequence[str]) -> str:
    """Return the text of tokens in the alphabet; a character whose bytes are incomplete becomes ``�``."""
    characters = "".join(tokens)
    content = bytes(BYTES[character] for character in characters if character in BYTES)
    return content.decode("utf-8", "replace")


VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"})
"""Signs for characters without ink."""


def label_of(token: str) -> str:
    """Return a token in the alphabet as a label in figures, in which a space is ``␣`` and a line feed ``⏎``."""
    return text_of([token]).translate(VISIBLE)


def numbers(tokens: Sequence[str]) -> str:
    """Return the numbers of tokens without a text, separated by spaces."""
    return " ".join(token.removeprefix(NUMBER) for token in tokens)


def _characters(text: str, vocabulary: Sequence[str]) -> list[str]:
    by_character = {character: written(character) for character in set(text)}
    return [by_character[character] for character in text]


def _bytes(text: str, vocabulary: Sequence[str]) -> list[str]:
    return [*written(text)]


def _subwords(text: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the tokens of byte-pair encoding, whose vocabulary is in the order of its merges."""
    ranks = {token: rank for rank, token in enumerate(vocabulary)}
    splitter = tokenizers_package().pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens: list[str] = []
    for piece, _ in splitter.pre_tokenize_str(text):
        tokens += _merged(piece, ranks)
    return tokens


def _symbols(text: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the longest tokens of a vocabulary from left to right; a character that it lacks is one token."""
    symbols = {*vocabulary}
    longest = max(len(symbol) for symbol in vocabulary)
    content = written(text)
    tokens: list[str] = []
    position = 0
    while position < len(content):
        token = _first_symbol(content[position : position + longest], symbols)
        if token is None:
            size = _character_bytes(BYTES[content[position]])
            token = content[position : position + size]
        tokens.append(token)
        position += len(token)
    return tokens


def _first_symbol(content: str, symbols: set[str]) -> str | None:
    """Return the longest symbol with which a content begins, or None."""
    for size in range(len(content), 0, -1):
        if content[:size] in symbols:
            return content[:size]
    return None


def _character_bytes(first_byte: int) -> int:
    """Return the number of bytes of the UTF-8 character that begins with this byte."""
    return 1 + sum(first_byte >= start for start in MULTIBYTE_STARTS)


def _numbers(text: str, vocabulary: Sequence[str]) -> list[str]:
    return [f"{NUMBER}{number}" for number in text.split()]


SPLIT: Mapping[TextUnit, Callable[[str, Sequence[str]], list[str]]] = {
    "text-character": _characters,
    "text-byte": _bytes,
    "text-subword": _subwords,
    "text-symbol": _symbols,
    "text-number": _numbers,
}
"""Functions from a text and the words of the vocabulary to tokens, by unit."""


def text_tokens(text: str, unit: TextUnit, vocabulary: Sequence[str] = ()) -> list[str]:
    """Return the tokens of a text.

    Args:
        text: Raw text.
        unit: What a token is.
        vocabulary: Words in the order of their ids; used by ``text-subword`` and ``text-symbol``.
    """
    return SPLIT[unit](text, vocabulary)


def tokenizers_package() -> Any:
    """Return the package ``tokenizers``.

    Raises:
        HeadToHeadError: If it is not installed.
    """
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise HeadToHeadError(
            "subwords and tokenizer files require the package tokenizers; run pip install tokenizers"
        ) from error


def _merged(text: str, ranks: Mapping[str, int]) -> list[str]:
    """Return the tokens of a text in the alphabet: of two neighbours that are a token, those of lowest rank first."""
    tokens = list(text)
    while True:
        merges = []
        for position, (left, right) in enumerate(pairwise(tokens)):
            if left + right in ranks:
                merges.append((ranks[left + right], position))
        if not merges:
            return tokens
        _, first = min(merges)
        tokens[first : first + 2] = [tokens[first] + tokens[first + 1]]
