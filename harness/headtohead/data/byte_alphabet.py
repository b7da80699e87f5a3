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
ALPHABET = {byte: chr(byte) for byte in PRINTABLE} | {
    byte: chr(256 + n) for n, byte in enumerate(OTHERS)
}
"""The character of each byte."""
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
    return "".join(ALPHABET[byte] for byte in text.encode("utf-8", "surrogatepass"))


def readable(tokens: Sequence[str]) -> str:
    """Return the text of tokens in the alphabet; a character whose bytes are incomplete becomes ``�``."""
    known = [BYTES[character] for token in tokens for character in token if character in BYTES]
    return bytes(known).decode("utf-8", "replace")


def numbers(tokens: Sequence[str]) -> str:
    """Return the numbers of tokens without a text, separated by spaces."""
    return " ".join(token.removeprefix(NUMBER) for token in tokens)


def _characters(text: str, vocabulary: Sequence[str]) -> list[str]:
    return [written(character) for character in text]


def _bytes(text: str, vocabulary: Sequence[str]) -> list[str]:
    return [*written(text)]


def _subwords(text: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the tokens of byte-pair encoding, whose vocabulary is in the order of its merges."""
    ranks = {token: rank for rank, token in enumerate(vocabulary)}
    pieces = (
        tokenizers_package().pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    )
    return [token for piece, _ in pieces for token in _merged(piece, ranks)]


def _symbols(text: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the longest tokens of a vocabulary from left to right; a character that it lacks is one token."""
    known = {*vocabulary}
    longest = max(map(len, vocabulary))
    content = written(text)
    found: list[str] = []
    position = 0
    while position < len(content):
        starts = (content[position : position + size] for size in range(longest, 0, -1))
        token = next((start for start in starts if start in known), None)
        if token is None:
            size = 1 + sum(BYTES[content[position]] >= start for start in MULTIBYTE_STARTS)
            token = content[position : position + size]
        found.append(token)
        position += len(token)
    return found


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
            "data.unit: subword requires the package tokenizers; pip install 'headtohead[subwords]'"
        ) from error


def _merged(text: str, ranks: Mapping[str, int]) -> list[str]:
    """Return the tokens of a text in the alphabet: of two neighbours that are a token, those of lowest rank first."""
    tokens = list(text)
    while pairs := [
        (ranks[pair], n) for n, pair in enumerate(map("".join, pairwise(tokens))) if pair in ranks
    ]:
        _, first = min(pairs)
        tokens[first : first + 2] = ["".join(tokens[first : first + 2])]
    return tokens
