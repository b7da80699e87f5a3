"""tatoeba: sentence pairs of Tatoeba, from a file or by download.

Supported files: the "Sentence pairs" export (id, text, id, text), the two or three columns of
manythings.org/anki, and the weekly per-language sentences with their links. Quotation marks are
ordinary characters: the files do not quote, and a CSV reader would alter rows.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator

from headtohead.data import fetch, fetched_sha256, file_sha256, read_lines
from headtohead.plugin import Corpus, Dataset, FilePath, HeadToHeadError, NotHashed, Pair, hookimpl
from headtohead.plugin import Options as BaseOptions

WEEKLY = "https://downloads.tatoeba.org/exports/per_language"
PACKED = (".zip", ".tsv", ".txt", ".csv", ".xz", ".gz", ".bz2")
NULL = "\\N"


class Options(BaseOptions):
    """Languages and files; without files the weekly exports are downloaded."""

    pair: str = Field(
        "eng-spa",
        description="language codes of Tatoeba, source first; it does not exchange the columns of file",
    )
    file: Annotated[str | None, FilePath()] = Field(
        None, description="sentence pairs in two, three or four columns; compressed or plain"
    )
    swap: bool = Field(False, description="the file has the target language first")
    sentences: Annotated[tuple[str, ...], FilePath()] = Field(
        (), description="weekly per-language sentences, one file or several; requires links"
    )
    links: Annotated[str | None, FilePath()] = Field(None, description="weekly links of the pair")
    url: Annotated[str | None, NotHashed()] = Field(
        None,
        description="URL of a mirror of the weekly exports, or of one file of pairs; together with `file`: the URL "
        "from which that file can be downloaded",
    )
    sha256: Annotated[str | dict[str, str] | None, NotHashed()] = Field(
        None, description="expected sha256 of the file; for several files a mapping by file name"
    )

    @field_validator("sentences", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        # A list is no tuple for pydantic's strict mode after a validator in Python.
        return tuple(value) if isinstance(value, list) else value

    @field_validator("pair")
    @classmethod
    def _check_pair(cls, value: str) -> str:
        if not re.fullmatch("[a-z]{3,4}-[a-z]{3,4}", value):
            raise ValueError("expected two language codes such as eng-spa")
        return value

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not re.match("https?://[^/]", value):
            raise ValueError("expected http://host or https://host with a path")
        return value

    @model_validator(mode="after")
    def _check_files(self) -> Options:
        if bool(self.sentences) != bool(self.links):
            raise ValueError(
                "sentences requires links and links requires sentences; set both, or file"
            )
        if self.file and self.links:
            raise ValueError("file excludes sentences and links; leave out either")
        if isinstance(self.sha256, dict):
            names = [_file_name(location) for location in _locations(self)]
            unknown = sorted(self.sha256.keys() - {*names})
            if unknown:
                raise ValueError(
                    f"sha256 names '{unknown[0]}', which is not read; use {', '.join(names)}"
                )
        return self


class Tatoeba(Dataset):
    """Sentence pairs of tatoeba.org, from a file or by download."""

    phrase = "Tatoeba[ {pair}]"
    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str | None:
        """Return a hash of the sha256 of all files, or None if a file is not downloaded yet."""
        assert isinstance(options, Options)
        hashes: list[str] = []
        is_complete = True
        for location in _locations(options):
            if not _is_url(location):
                hashes.append(file_sha256(_path(location, options)))
                continue
            sha256 = fetched_sha256(location, cache)
            if sha256 is None:
                is_complete = False
            else:
                hashes.append(sha256)
        if not is_complete:
            return None
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the pairs in the order of the file; a missing side is an empty text."""
        assert isinstance(options, Options)
        files = [_local(location, options, cache) for location in _locations(options)]
        notes: list[str] = []
        if len(files) == 1:
            texts = _read_pairs(files[0], options.swap)
        else:
            *sentence_files, links = files
            sentences = _read_sentences(sentence_files, options.pair)
            texts = _linked(sentences, links, options.pair, notes)
        if not texts:
            raise HeadToHeadError(
                f"'{files[-1]}' links no sentences of {options.pair}; check data.pair"
            )
        pairs = [Pair(source, target, source) for source, target in texts]
        source, target = options.pair.split("-")
        return Corpus(
            pairs=pairs,
            licence="CC BY 2.0 FR (a part of Tatoeba is CC0)",
            citation="Tatoeba, https://tatoeba.org, CC BY 2.0 FR; files of two or three columns "
            "from https://www.manythings.org/anki",
            languages=(source, target),
            notes=tuple(notes),
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"tatoeba": Tatoeba}


def _locations(options: Options) -> list[str]:
    """Return paths or URLs: a file of pairs, or sentences followed by links."""
    if options.file:
        return [options.file]
    if options.links:
        return [*options.sentences, options.links]
    base = (options.url or WEEKLY).rstrip("/")
    if base.lower().endswith(PACKED):
        return [base]
    source, target = options.pair.split("-")
    return [
        f"{base}/{source}/{source}_sentences.tsv.bz2",
        f"{base}/{target}/{target}_sentences.tsv.bz2",
        f"{base}/{source}/{source}-{target}_links.tsv.bz2",
    ]


def _file_name(location: str) -> str:
    _, _, name = location.rpartition("/")
    return name


def _is_url(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def _path(location: str, options: Options) -> Path:
    path = Path(os.path.expanduser(location))
    if options.url and not os.path.exists(path):
        raise HeadToHeadError(
            f"file '{path}' does not exist; download {options.url} and set data.file to its path"
        )
    return path


def _local(location: str, options: Options, cache: Path) -> Path:
    """Return the path of a file, downloaded if necessary; its sha256 is checked if one is expected."""
    expected = options.sha256
    if isinstance(expected, dict):
        expected = expected.get(_file_name(location))
    if _is_url(location):
        return fetch(location, cache, sha256=expected)
    path = _path(location, options)
    file_sha256(path, expected)
    return path


def _read_pairs(path: Path, swap: bool) -> list[tuple[str, str]]:
    """Return source and target of each row; an empty row or a missing side is an empty text."""
    lines = read_lines(path)
    columns = _columns(path, lines)
    first, second = (1, 3) if columns == 4 else (0, 1)
    pairs: list[tuple[str, str]] = []
    wrong: list[tuple[int, int]] = []
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t")
        if len(fields) == columns:
            pair = (fields[first].strip(), fields[second].strip())
        elif len(fields) == 1 and (columns < 4 or not line.strip()):
            pair = (line.strip(), "")
        else:
            wrong.append((number, len(fields)))
            continue
        pairs.append(pair[::-1] if swap else pair)
    if wrong:
        number, count = wrong[0]
        message = f"file '{path}': line {number} has {count} columns, expected {columns} as in the lines before"
        if len(wrong) > 1:
            message += f", and {len(wrong) - 1} more lines are wrong"
        raise HeadToHeadError(message)
    return pairs


def _columns(path: Path, lines: Sequence[str]) -> int:
    """Return the number of columns of the first line that contains a tab."""
    line_number = 1
    fields = [""]
    for number, line in enumerate(lines, start=1):
        if "\t" in line:
            line_number = number
            fields = line.split("\t")
            break
    numeric = [field.isdigit() for field in fields]
    if len(fields) == 4 and numeric[0] and numeric[2]:
        return 4
    if numeric == [True, True] or (numeric[0] and len(fields) in (3, 6)):
        raise HeadToHeadError(
            f"file '{path}' is a weekly export; use data.sentences or data.links, not data.file"
        )
    if len(fields) in (2, 3):
        return len(fields)
    raise HeadToHeadError(
        f"file '{path}': line {line_number} has {len(fields)} columns; expected text, text and an optional "
        "attribution, or id, text, id, text, separated by tabs"
    )


def _read_sentences(paths: Sequence[Path], pair: str) -> dict[str, dict[str, str]]:
    """Return the texts of each language of the pair by sentence id."""
    texts: dict[str, dict[str, str]] = {code: {} for code in pair.split("-")}
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            fields = line.split("\t")
            if len(fields) not in (3, 6) or not fields[0].isdigit():
                raise HeadToHeadError(
                    f"file '{path}': line {number} has {len(fields)} columns; expected id, "
                    "language, text, and in the detailed form also user and two dates"
                )
            if fields[1] in texts and fields[2] != NULL:
                texts[fields[1]][fields[0]] = fields[2].strip()
    for code, sentences in texts.items():
        if not sentences:
            names = ", ".join(f"'{path}'" for path in paths)
            raise HeadToHeadError(
                f"{names} contain no sentence in '{code}'; check data.pair: {pair}"
            )
    return texts


def _linked(
    texts: Mapping[str, Mapping[str, str]], path: Path, pair: str, notes: list[str]
) -> list[tuple[str, str]]:
    """Return the linked pairs without duplicates; links can be written in either direction."""
    source_code, target_code = pair.split("-")
    source = texts[source_code]
    target = texts[target_code]
    links: dict[tuple[str, str], None] = {}
    unresolved = 0
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise HeadToHeadError(
                f"file '{path}': line {number} has {len(fields)} columns, expected id and translation id"
            )
        first, second = fields
        if first in source and second in target:
            links[first, second] = None
        elif second in source and first in target:
            links[second, first] = None
        else:
            unresolved += 1
    if unresolved:
        notes.append(f"{unresolved} links name a sentence that the files do not contain")
    return [(source[source_id], target[target_id]) for source_id, target_id in links]
