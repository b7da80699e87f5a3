"""text: a text file for decoder-only models, in blocks of characters, bytes or subwords.

Validation and test are passages that are spread over the file, or with split ``last`` its end; the passages between
them are for training. Block i of a passage has its tokens i·n to (i + 1)·n, so that every token but the first of a
passage is predicted once, from tokens of the same passage.

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
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from headtohead.data import (
    BYTES,
    NUMBER,
    SPECIALS,
    Metric,
    Passage,
    fetch,
    fetched_sha256,
    file_sha256,
    last_passages,
    parse_json,
    read_text,
    read_token_ids,
    spread_passages,
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
SUBWORD_SIZE = 4
"""Characters of a subword, estimated before subwords are learned; English has fewer with small vocabularies."""
MAX_SEED = 2**32 - 1
LINE_FEED = written("\n")
PARTS = ("train", "valid", "test")


def predicted_bytes(tokens: str) -> float:
    """Return the number of bytes of all tokens but the first, which has no label."""
    count = 0
    for token in tokens.split()[1:]:
        count += 2 if token.startswith(NUMBER) else len(token)
    return float(count)


def bits_per_byte(counts: Sequence[float]) -> float:
    """Return the loss in bits of the predicted tokens divided by their bytes; NaN without bytes."""
    nats, predicted = counts
    if not predicted:
        return math.nan
    return nats / math.log(2) / predicted


BITS_PER_BYTE = Metric(
    "bits_per_byte",
    range=(0.0, math.inf),
    higher_is_better=False,
    per_target=predicted_bytes,
    pool=bits_per_byte,
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
        description="a second file for validation and test, instead of held_out",
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
    held_out: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="fraction of the file for validation and test together; default: 0.1, or what 100,000 tokens "
        "need, at most 0.2; with split last 0.1",
    )
    passage_seed: int = Field(
        1,
        ge=0,
        le=MAX_SEED,
        description="split passages: seed of the places of the passages of validation and test",
    )

    @model_validator(mode="after")
    def _refuse_unused(self) -> Self:
        if self.valid_file and self.held_out is not None:
            raise ValueError("held_out is not used with valid_file; leave one of them out")
        are_ids = [_has_ids(name) for name in (self.file, self.valid_file) if name]
        has_ids = True in are_ids
        if has_ids and False in are_ids:
            raise ValueError("file and valid_file must both be .bin files of ids, or both text")
        if has_ids and self.unit != "character":
            raise ValueError("a .bin file has its own tokens; leave out unit")
        if not has_ids and self.symbols:
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

    phrase = "a text[ of {download}][ in {unit}s]"
    Options: ClassVar[type[BaseOptions]] = Options
    splits: ClassVar[tuple[str, ...]] = ("passages", "last")
    of_split: ClassVar[Mapping[str, str]] = {"passage_seed": "passages"}
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
        files = _files(options, cache)
        if options.symbols:
            files.append(Path(options.symbols))
        hashes = [file_sha256(file) for file in files]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the blocks of all parts as targets of empty sources."""
        assert isinstance(options, Options)
        files = _files(options, cache)
        read = _ids_of_files if _has_ids(files[0].name) else _texts_of_files
        content = read(files, options, split)
        pairs: list[Pair] = []
        places: dict[str, list[tuple[int, int]]] = {}
        for part in PARTS:
            passages = [tokens for tokens in content.passages if tokens.passage.part == part]
            if not passages:
                raise _too_short(files, part)
            places[part] = [(tokens.passage.start, tokens.passage.end) for tokens in passages]
            for tokens in passages:
                pairs += tokens.blocks(options.block)
        return Corpus(
            pairs=pairs,
            licence="not stated",
            citation="not stated",
            languages=("none", options.download or files[0].name),
            notes=_notes(content, options),
            words=content.words,
            targets_join=False,
            has_sources=False,
            unit=content.unit,
            passages=places,
        )


def _too_short(files: Sequence[Path], part: str) -> HeadToHeadError:
    remedy = "use a longer file"
    if len(files) == 1:
        remedy = "use a longer file, or change data.held_out"
    return HeadToHeadError(
        f"file '{files[-1]}' is too short: {part} has no token to predict; {remedy}"
    )


@dataclass(frozen=True)
class _Tokens:
    """The tokens of a passage, at least two."""

    passage: Passage
    tokens: Sequence[str]

    def blocks(self, block: int) -> Iterator[Pair]:
        """Yield the blocks of the passage as targets of empty sources; the passage is their group."""
        part = self.passage.part
        group = f"{part} {self.passage.start}"
        for start in range(0, len(self.tokens) - 1, block):
            tokens = self.tokens[start : start + block + 1]
            yield Pair("", " ".join(tokens), group, part)


@dataclass(frozen=True)
class _Content:
    """The passages of all parts with their tokens, written in the alphabet.

    Args:
        passages: Passages with at least two tokens, those of a part in order.
        words: The tokens that the unit has in every text, in the order of their ids; empty if they are not known.
        unit: What a token is.
        kind: What a token is, for a note.
    """

    passages: Sequence[_Tokens]
    words: list[str]
    unit: TextUnit
    kind: str


def _notes(content: _Content, options: Options) -> tuple[str, ...]:
    """Return the numbers of tokens and of passages of the parts."""
    sizes = []
    numbers = []
    for part in PARTS:
        passages = [tokens for tokens in content.passages if tokens.passage.part == part]
        count = sum(len(tokens.tokens) for tokens in passages)
        sizes.append(f"{part} {count:,}")
        numbers.append(f"{part} {len(passages)}")
    return (
        f"tokens ({content.kind}): {', '.join(sizes)}, in blocks of {options.block}",
        f"passages: {', '.join(numbers)}",
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


def _texts_of_files(files: Sequence[Path], options: Options, split: str) -> _Content:
    """Return the tokens of text files; subwords are learned on the training passages."""
    texts = [read_text(file) for file in files]
    if len(texts) > 1 and _second_half(texts[1]) in texts[0]:
        raise _overlap(files)
    token_size = SUBWORD_SIZE if options.unit == "subword" else 1
    passages = []
    for text, passage in _divided(texts, _line_starts, options, split, token_size):
        passages.append((passage, text[passage.start : passage.end]))
    if options.unit == "character":
        characters = [(passage, text_tokens(text, "text-character")) for passage, text in passages]
        return _Content(_usable(characters), [], "text-character", options.unit)
    if options.unit == "byte":
        byte_tokens = [(passage, text_tokens(text, "text-byte")) for passage, text in passages]
        return _Content(_usable(byte_tokens), list(BYTES), "text-byte", options.unit)
    tokenizer = tokenizers_package().ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        [text for passage, text in passages if passage.part == "train"],
        vocab_size=options.subwords,
        show_progress=False,
    )
    ids = tokenizer.get_vocab()
    subwords = [(passage, tokenizer.encode(text).tokens) for passage, text in passages]
    in_order_of_ids = sorted(ids, key=lambda token: ids[token])
    return _Content(_usable(subwords), in_order_of_ids, "text-subword", options.unit)


def _ids_of_files(files: Sequence[Path], options: Options, split: str) -> _Content:
    """Return the tokens of files of ids: the symbols of the ids, or without symbols their numbers."""
    if options.symbols is None:
        symbols = None
        words: list[str] = []
        unit: TextUnit = "text-number"
    else:
        symbols = _symbols(options.symbols)
        words = list(symbols.values())
        # Symbols with every byte, such as GPT-2's, are those of byte-pair encoding.
        unit = "text-subword" if BYTES.keys() <= {*words} else "text-symbol"
    tokens = [_numbered(file, symbols) for file in files]
    if len(tokens) > 1 and " ".join(_second_half(tokens[1])) in " ".join(tokens[0]):
        raise _overlap(files)
    passages = []
    for ids, passage in _divided(tokens, _starts_after_line_feed, options, split):
        passages.append((passage, ids[passage.start : passage.end]))
    return _Content(_usable(passages), words, unit, "ids")


def _usable(passages: Sequence[tuple[Passage, Sequence[str]]]) -> list[_Tokens]:
    """Return the passages that have a token to predict."""
    return [_Tokens(passage, tokens) for passage, tokens in passages if len(tokens) > 1]


def _divided(
    contents: Sequence[Any],
    line_starts: Callable[[Any], list[int]],
    options: Options,
    split: str,
    token_size: int = 1,
) -> list[tuple[Any, Passage]]:
    """Return the passages of all parts, each with the content that it belongs to.

    Args:
        contents: One text or list of tokens, or one for training and another one for validation and test.
        line_starts: Returns the positions of a content at which a line begins.
        options: The options of the dataset.
        split: passages or last.
        token_size: Characters of a token, estimated.
    """
    divided: list[tuple[Any, Passage]] = []
    held_out = options.held_out
    if len(contents) > 1:
        divided.append((contents[0], Passage("train", 0, len(contents[0]))))
        held_out = 1.0
    last = contents[-1]
    if split == "last":
        passages = last_passages(len(last), held_out)
    else:
        passages = spread_passages(
            len(last),
            held_out,
            line_starts(last),
            block=options.block,
            token_size=token_size,
            seed=options.passage_seed,
        )
    for passage in passages:
        divided.append((last, passage))
    return divided


def _line_starts(text: str) -> list[int]:
    """Return the positions after the line feeds of a text."""
    return [match.end() for match in re.finditer("\n", text)]


def _starts_after_line_feed(tokens: Sequence[str]) -> list[int]:
    """Return the positions after the tokens that end in a line feed; none where tokens are numbers."""
    return [index + 1 for index, token in enumerate(tokens) if token.endswith(LINE_FEED)]


def _second_half(content: Any) -> Any:
    return content[len(content) // 2 :]


def _overlap(files: Sequence[Path]) -> HeadToHeadError:
    return HeadToHeadError(
        f"file '{files[1]}' ends with a part of '{files[0]}'; use other text for validation"
    )


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
    is_collection = isinstance(content, list | dict) and len(content) > 0
    if not is_collection or not all(isinstance(text, str) for text in content):
        raise HeadToHeadError(
            f"file '{name}' has no symbols; write a JSON list of the texts of ids, or a mapping from texts to ids"
        )
    if isinstance(content, list):
        pairs = list(enumerate(content))
    else:
        pairs = [(index, text) for text, index in content.items()]
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
    if is_alphabet and BYTES.keys() >= {*text}:
        return text
    return written(text)


def _shown(value: object) -> str:
    """Return a JSON value for a message, at most 40 characters of it."""
    return json.dumps(value)[:40]


def _numbered(path: Path, symbols: Mapping[int, str] | None) -> list[str]:
    """Return the tokens of a file of ids; without symbols, a token is its number."""
    ids = read_token_ids(path)
    if symbols is None:
        return [f"{NUMBER}{index}" for index in ids.tolist()]
    is_unknown = ~np.isin(ids, list(symbols))
    if is_unknown.any():
        first = int(is_unknown.argmax())
        raise HeadToHeadError(
            f"file '{path}' has the id {ids[first]} (token {first + 1:,}), which data.symbols lacks; add its text, or "
            "use the symbols of the tokenizer that wrote the file"
        )
    return [symbols[index] for index in ids.tolist()]


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"text": Text}
