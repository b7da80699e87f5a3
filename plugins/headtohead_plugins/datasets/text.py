"""text: a text file for decoder-only models, in blocks of characters, bytes or subwords.

The file is one sequence. Its last part is held out: the first half of it for validation, the rest for the test. Block i
has the tokens i·n to (i + 1)·n, so that every token but the first of a part is predicted once.

A token is written in the alphabet of bytes of GPT-2 (`headtohead.data.byte_alphabet`), in which the number of bytes of
a token is its length. A file of token ids without their texts, such as nanoGPT's ``train.bin``, has the tokens ``№0``,
``№1`` and so on, of two bytes each.

Paper: A. Radford et al. "Language Models are Unsupervised Multitask Learners", 2019, section 2.2 (alphabet and
byte-level byte-pair encoding).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from headtohead.data import (
    BYTES,
    NUMBER,
    SPECIALS,
    Metric,
    fetch,
    fetched_sha256,
    file_sha256,
    parse_json,
    read_text,
    read_token_ids,
    text_tokens,
    tokenizers_package,
    written,
)
from headtohead.plugin import (
    Corpus,
    Dataset,
    FilePath,
    HeadToHeadError,
    NotHashed,
    Pair,
    TextUnit,
    hookimpl,
)
from headtohead.plugin import Options as BaseOptions

MAX_ID = 65_535
"""Largest id of a file of ids with 16 bits."""
NOT_SYMBOLS = frozenset(SPECIALS) - {"<unk>"}
"""Special tokens that data of ids cannot contain: an id of theirs would be an unknown token."""
DOWNLOADS = {
    "tinyshakespeare": (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    )
}
"""URL and sha256 of each text that can be downloaded."""
SUBWORDS = 1000
"""Default number of subwords."""


def predicted_bytes(tokens: str) -> float:
    """Return the number of bytes of all tokens but the first, which has no label."""
    return float(sum(2 if token.startswith(NUMBER) else len(token) for token in tokens.split()[1:]))


BITS_PER_BYTE = Metric(
    "bits_per_byte",
    range=(0.0, math.inf),
    higher_is_better=False,
    per_target=predicted_bytes,
    pool=lambda counts: counts[0] / math.log(2) / counts[1] if counts[1] else math.nan,
)


class Options(BaseOptions):
    """The file, its tokens and the length of a block."""

    file: Annotated[str | None, FilePath()] = Field(
        None,
        description="a UTF-8 text file, also packed (.gz, .xz, .bz2, .zip), or a .bin file of token ids with 16 bits "
        "each, as nanoGPT writes, or after the header of llm.c and modded-nanogpt",
    )
    valid_file: Annotated[str | None, FilePath()] = Field(
        None,
        description="a second file for validation (first half) and test (rest), instead of held_out",
    )
    symbols: Annotated[str | None, FilePath()] = Field(
        None,
        description="JSON list of the texts of ids, or mapping from texts to ids, for .bin files; default: none, and "
        "a token is its number",
    )
    download: Annotated[Literal["tinyshakespeare"] | None, NotHashed()] = Field(
        None, description="a text that is downloaded and verified, instead of file"
    )
    unit: Literal["character", "byte", "subword"] = Field(
        "character",
        description="tokens; subword: byte-level byte-pair encoding, learned on the training part",
    )
    subwords: int = Field(
        SUBWORDS, ge=257, le=1_000_000, description="unit subword: number of different tokens"
    )
    block: int = Field(64, ge=1, le=100_000, description="predicted tokens of a block")
    held_out: float = Field(
        0.1, gt=0, lt=1, description="fraction at the end of the file for validation and test"
    )

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        of_ids = {_has_ids(name) for name in (self.file, self.valid_file) if name}
        if self.valid_file and self.held_out != 0.1:
            raise ValueError("held_out is not used with valid_file; leave one of them out")
        if len(of_ids) > 1:
            raise ValueError("file and valid_file must both be .bin files of ids, or both text")
        if of_ids == {True} and self.unit != "character":
            raise ValueError("a .bin file has its own tokens; leave out unit")
        if of_ids != {True} and self.symbols:
            raise ValueError(
                "symbols are the texts of ids; leave them out, or set file to a .bin file"
            )
        if self.unit != "subword" and self.subwords != SUBWORDS:
            raise ValueError(
                "subwords is the number of tokens of unit: subword; set it, or leave subwords out"
            )
        return self


class Text(Dataset):
    """A text file, in blocks of characters, bytes or subwords."""

    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("contiguous",)
    metrics: ClassVar[tuple[Metric, ...]] = (BITS_PER_BYTE,)
    normalise: ClassVar[str] = "none"
    unused: ClassVar[Mapping[str, str]] = {
        "tokens": "set data.unit to character, byte or subword",
        "normalise": "every byte is kept; leave it out",
        "valid": "set data.held_out",
        "test": "set data.held_out",
        "max_words": "set data.block",
        "source_boundaries": "a text has no boundary tokens; leave it out",
        "target_boundaries": "a text has no boundary tokens; leave it out",
        "truncate_tokens": "set data.block",
        "vocabulary.file": "set data.unit, or data.file to a .bin file of token ids",
        "vocabulary.ids": "ids are in the order of the tokens; leave it out",
        "vocabulary.max_size": "every token of the training part is kept; leave it out",
        "vocabulary.min_count": "every token of the training part is kept; leave it out",
        "vocabulary.unknown": "a character that training lacks counts as <unk>; leave it out",
    }
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"source_boundaries": "none", "target_boundaries": "none"},
        "model": {"architecture": "decoder-only"},
        "evaluate": {"decode": "none"},
    }

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str | None:
        """Return a hash of the sha256 of all files, or None before a download."""
        assert isinstance(options, Options)
        if options.download:
            return fetched_sha256(DOWNLOADS[options.download][0], cache)
        files = [*_files(options, cache), *([Path(options.symbols)] if options.symbols else [])]
        return hashlib.sha256(" ".join(map(file_sha256, files)).encode()).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the blocks of all parts as targets of empty sources."""
        assert isinstance(options, Options)
        files = _files(options, cache)
        of_ids = _has_ids(files[0].name)
        symbols = _symbols(options.symbols) if options.symbols else None
        train, *others = [_numbered(file, symbols) if of_ids else read_text(file) for file in files]
        first = len(train) if others else int(len(train) * (1 - options.held_out))
        rest = others[0] if others else train[first:]
        parts = {
            "train": train[:first],
            "valid": rest[: len(rest) // 2],
            "test": rest[len(rest) // 2 :],
        }
        held_out, trained = (
            (" ".join(own) if of_ids else own) for own in (parts["test"], parts["train"])
        )
        if others and held_out in trained:
            raise HeadToHeadError(
                f"file '{files[1]}' ends with a part of '{files[0]}'; use other text for validation"
            )
        known = list(symbols.values()) if symbols else []
        tokens, words = (parts, known) if of_ids else _tokens(parts, options)
        pairs = [
            Pair("", " ".join(own[start : start + options.block + 1]), f"{part} {start}", part)
            for part, own in tokens.items()
            for start in range(0, len(own) - 1, options.block)
        ]
        missing = [part for part, own in tokens.items() if len(own) < 2]
        if missing:
            raise HeadToHeadError(
                f"file '{files[-1]}' is too short: {missing[0]} has no token to predict; use a longer file"
                f"{'' if others else ', or change data.held_out'}"
            )
        sizes = ", ".join(f"{part} {len(own):,}" for part, own in tokens.items())
        return Corpus(
            pairs=pairs,
            licence="not stated",
            citation="not stated",
            languages=("none", options.download or files[0].name),
            notes=(
                f"tokens ({'ids' if of_ids else options.unit}): {sizes}, in blocks of {options.block}",
            ),
            words=words,
            targets_join=False,
            has_sources=False,
            unit=_unit(options, symbols, of_ids),
        )


def _files(options: Options, cache: Path) -> list[Path]:
    """Return the file of a text, and the second file if there is one."""
    if options.download:
        if options.file or options.valid_file:
            raise HeadToHeadError(
                "data.download replaces data.file and data.valid_file; keep one of them"
            )
        url, sha256 = DOWNLOADS[options.download]
        return [fetch(url, cache, sha256=sha256)]
    if not options.file:
        raise HeadToHeadError(
            "dataset 'text' needs a file; set data.file to a text file, or data.download: tinyshakespeare"
        )
    return [Path(name) for name in (options.file, options.valid_file) if name]


def _has_ids(name: str) -> bool:
    """Return whether a file has token ids, by the ending of its name."""
    return name.lower().endswith(".bin")


def _symbols(name: str) -> dict[int, str]:
    """Return the token of each id in the alphabet, from a list of texts or a mapping from texts to ids."""
    try:
        content = parse_json(read_text(Path(name)))
    except (ValueError, RecursionError) as error:
        raise HeadToHeadError(
            f"file '{name}' is not a JSON file of symbols: {error}; correct it"
        ) from error
    if (
        not content
        or not isinstance(content, list | dict)
        or not all(isinstance(text, str) for text in content)
    ):
        raise HeadToHeadError(
            f"file '{name}' has no symbols; write a JSON list of the texts of ids, or a mapping from texts to ids"
        )
    pairs = (
        list(enumerate(content))
        if isinstance(content, list)
        else [(index, text) for text, index in content.items()]
    )
    texts: dict[int, str] = {}
    for index, text in pairs:
        if type(index) is not int or not 0 <= index <= MAX_ID:
            raise HeadToHeadError(
                f"file '{name}' has the id {_shown(index)} for the symbol {_shown(text)}; an id is a whole number from "
                f"0 to {MAX_ID:,}"
            )
        if index in texts:
            raise HeadToHeadError(
                f"file '{name}' has two symbols for the id {index}, {_shown(texts[index])} and {_shown(text)}; keep one"
            )
        texts[index] = text
    return _tokens_of_symbols(name, dict(sorted(texts.items())))


def _tokens_of_symbols(name: str, texts: Mapping[int, str]) -> dict[int, str]:
    """Return the token of each id: its text in the alphabet, in which the symbols of GPT-2's file already are."""
    is_alphabet = BYTES.keys() <= {*texts.values()}
    tokens: dict[int, str] = {}
    ids: dict[str, int] = {}
    for index, text in texts.items():
        place = f"file '{name}' has the symbol {_shown(text)} for the id {index}"
        try:
            token = _token_of(text, is_alphabet)
        except UnicodeEncodeError as error:
            raise HeadToHeadError(
                f"{place}, which is half of a character; write whole characters"
            ) from error
        if not token:
            raise HeadToHeadError(f"{place}, which has no character; write its text")
        if token in NOT_SYMBOLS:
            raise HeadToHeadError(
                f"{place}, which is a special token of headtohead; write another text"
            )
        if token in ids:
            raise HeadToHeadError(f"{place} and for the id {ids[token]}; keep one")
        ids[token] = index
        tokens[index] = token
    return tokens


def _token_of(text: str, is_alphabet: bool) -> str:
    """Return a symbol in the alphabet; the symbols of GPT-2's file are in it already, apart from special tokens.

    Raises:
        UnicodeEncodeError: If the text has half of a character.
    """
    text.encode()
    return text if is_alphabet and BYTES.keys() >= {*text} else written(text)


def _shown(value: object) -> str:
    """Return a JSON value for a message, at most 40 characters of it."""
    return json.dumps(value)[:40]


def _numbered(path: Path, symbols: Mapping[int, str] | None) -> list[str]:
    """Return the tokens of a file of ids; without symbols, a token is its number."""
    ids = read_token_ids(path)
    known = symbols or {index: f"{NUMBER}{index}" for index in np.unique(ids).tolist()}
    unknown = ~np.isin(ids, list(known))
    if unknown.any():
        first = int(unknown.argmax())
        raise HeadToHeadError(
            f"file '{path}' has the id {ids[first]} (token {first + 1:,}), which data.symbols lacks; add its text, or "
            "use the symbols of the tokenizer that wrote the file"
        )
    return [known[index] for index in ids.tolist()]


def _tokens(parts: Mapping[str, Any], options: Options) -> tuple[dict[str, Any], list[str]]:
    """Return the tokens of each part, written in the alphabet, and the tokens that the unit has in every text."""
    if options.unit == "character":
        return {part: text_tokens(text, "text-character") for part, text in parts.items()}, []
    if options.unit == "byte":
        return {part: text_tokens(text, "text-byte") for part, text in parts.items()}, list(BYTES)
    tokenizer = tokenizers_package().ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [parts["train"]], vocab_size=options.subwords, show_progress=False
    )
    ids = tokenizer.get_vocab()
    return {part: tokenizer.encode(text).tokens for part, text in parts.items()}, sorted(
        ids, key=ids.__getitem__
    )


def _unit(options: Options, symbols: Mapping[int, str] | None, of_ids: bool) -> TextUnit:
    """Return what a token is; symbols with every byte, such as GPT-2's, are those of byte-pair encoding."""
    if not of_ids:
        units: dict[str, TextUnit] = {
            "character": "text-character",
            "byte": "text-byte",
            "subword": "text-subword",
        }
        return units[options.unit]
    if symbols is None:
        return "text-number"
    return "text-subword" if BYTES.keys() <= {*symbols.values()} else "text-symbol"


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"text": Text}
