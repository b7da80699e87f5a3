"""text: a text file for decoder-only models, in blocks of characters, bytes or subwords.

The file is one sequence. Its last part is held out: the first half of it for validation, the rest for the test. Block i
has the tokens i·n to (i + 1)·n, so that every token but the first of a part is predicted once.

A token is written in the alphabet of bytes of GPT-2, in which every byte is one printable character: a space is ``Ġ``,
a line feed ``Ċ``, and the number of bytes of a token is its length.

Paper: A. Radford et al. "Language Models are Unsupervised Multitask Learners", 2019, section 2.2 (alphabet and
byte-level byte-pair encoding).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from headtohead.data import Metric, file_sha256, read_text
from headtohead.plugin import Corpus, Dataset, FilePath, HeadToHeadError, Pair, hookimpl
from headtohead.plugin import Options as BaseOptions

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
ALPHABET = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(OTHERS)}
"""The character of each byte."""
BYTES = {character: byte for byte, character in ALPHABET.items()}


def written(content: bytes) -> str:
    """Return bytes in the alphabet."""
    return "".join(map(ALPHABET.__getitem__, content))


def readable(tokens: str) -> str:
    """Return the text of tokens that are separated by spaces; a character whose bytes are incomplete becomes ``�``."""
    known = (BYTES[character] for character in tokens.replace(" ", "") if character in BYTES)
    return bytes(known).decode("utf-8", "replace")


def predicted_bytes(tokens: str) -> float:
    """Return the number of bytes of all tokens but the first, which has no label."""
    return float(sum(map(len, tokens.split()[1:])))


BITS_PER_BYTE = Metric(
    "bits_per_byte",
    range=(0.0, math.inf),
    higher_is_better=False,
    per_target=predicted_bytes,
    pool=lambda counts: counts[0] / math.log(2) / counts[1] if counts[1] else math.nan,
)


class Options(BaseOptions):
    """The file, its tokens and the length of a block."""

    file: Annotated[str, FilePath()] = Field("", description="a UTF-8 text file, also packed (.gz, .xz, .bz2, .zip)")
    unit: Literal["character", "byte", "subword"] = Field(
        "character", description="tokens; subword: byte-level byte-pair encoding, learned on the training part"
    )
    subwords: int = Field(1000, ge=257, le=1_000_000, description="unit subword: number of different tokens")
    block: int = Field(64, ge=1, le=100_000, description="predicted tokens of a block")
    held_out: float = Field(0.1, gt=0, lt=1, description="fraction at the end of the file for validation and test")


class Text(Dataset):
    """A text file, in blocks of characters, bytes or subwords."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("contiguous",)
    metrics: ClassVar[tuple[Metric, ...]] = (BITS_PER_BYTE,)
    normalise: ClassVar[str] = "none"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"source_boundaries": "none", "target_boundaries": "none"},
        "model": {"architecture": "decoder-only"},
        "evaluate": {"decode": "none"},
    }

    @classmethod
    def tokens_of(cls, text: str, words: Collection[str]) -> list[str]:
        """Return the longest tokens of the vocabulary from left to right; other characters become unknown tokens."""
        rest, found, longest = written(text.encode()), [], max(map(len, words))
        while rest:
            token = next((rest[:size] for size in range(longest, 0, -1) if rest[:size] in words), rest[:1])
            found.append(token)
            rest = rest[len(token) :]
        return found

    @classmethod
    def readable(cls, tokens: str) -> str:
        """Return the text of tokens in the alphabet."""
        return readable(tokens)

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str:
        """Return the sha256 of the file."""
        return file_sha256(_path(options))

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the blocks of all parts as targets of empty sources."""
        assert isinstance(options, Options)
        text = read_text(_path(options))
        first = int(len(text) * (1 - options.held_out))
        middle = (first + len(text)) // 2
        parts = {"train": text[:first], "valid": text[first:middle], "test": text[middle:]}
        tokens = _tokens(parts, options)
        pairs = [
            Pair("", " ".join(own[start : start + options.block + 1]), f"{part} {start}", part)
            for part, own in tokens.items()
            for start in range(0, len(own) - 1, options.block)
        ]
        missing = [part for part, own in tokens.items() if len(own) < 2]
        if missing:
            raise HeadToHeadError(
                f"file '{options.file}' is too short: {missing[0]} has no token to predict; change data.held_out, "
                "or use a longer file"
            )
        counts = ", ".join(f"{part} {len(own):,}" for part, own in tokens.items())
        return Corpus(
            pairs=pairs,
            licence="not stated",
            citation="not stated",
            languages=("none", "text"),
            notes=(f"tokens ({options.unit}): {counts}, in blocks of {options.block}",),
            targets_join=False,
            has_sources=False,
        )


def _path(options: BaseOptions) -> Path:
    assert isinstance(options, Options)
    if not options.file:
        raise HeadToHeadError("dataset 'text' needs a file; set data.file to a text file")
    return Path(options.file)


def _tokens(parts: Mapping[str, str], options: Options) -> dict[str, Sequence[str]]:
    """Return the tokens of each part, written in the alphabet."""
    if options.unit == "character":
        return {part: [written(character.encode()) for character in text] for part, text in parts.items()}
    if options.unit == "byte":
        return {part: written(text.encode()) for part, text in parts.items()}
    try:
        from tokenizers import ByteLevelBPETokenizer
    except ImportError as error:
        raise HeadToHeadError(
            "data.unit: subword requires the package tokenizers; pip install 'headtohead[subwords]'"
        ) from error
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([parts["train"]], vocab_size=options.subwords, show_progress=False)
    return {part: tokenizer.encode(text).tokens for part, text in parts.items()}


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"text": Text}
