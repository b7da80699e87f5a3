"""tatoeba: real sentence pairs, from a file in any of Tatoeba's forms or by download.

Read are the "Sentence pairs" export (id, text, id, text), the two and three columns of
manythings.org/anki, and the weekly per-language sentences with their links. Nothing is unquoted:
the files know no quoting, and reading them as CSV alters rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator

from headtohead import Corpus, Dataset, FilePath, HeadToHeadError, NotHashed, Pair, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import fetch, fetched_sha256, file_sha256, hash_pairs, read_lines

WEEKLY = "https://downloads.tatoeba.org/exports/per_language"
PACKED = (".zip", ".tsv", ".txt", ".csv", ".xz", ".gz", ".bz2")
NULL = "\\N"
LANGUAGES = {
    "ara": "Arabic",
    "ces": "Czech",
    "cmn": "Mandarin Chinese",
    "dan": "Danish",
    "deu": "German",
    "ell": "Greek",
    "eng": "English",
    "epo": "Esperanto",
    "fin": "Finnish",
    "fra": "French",
    "heb": "Hebrew",
    "hin": "Hindi",
    "hun": "Hungarian",
    "ita": "Italian",
    "jpn": "Japanese",
    "kor": "Korean",
    "nld": "Dutch",
    "pol": "Polish",
    "por": "Portuguese",
    "ron": "Romanian",
    "rus": "Russian",
    "spa": "Spanish",
    "swe": "Swedish",
    "tur": "Turkish",
    "ukr": "Ukrainian",
    "vie": "Vietnamese",
}


class Options(BaseOptions):
    """Which languages, and where the files are; without a file they are downloaded."""

    pair: str = Field("eng-spa", description="source and target, Tatoeba's language codes")
    file: Annotated[str | None, FilePath()] = Field(
        None, description="sentence pairs in two, three or four columns; packed or plain"
    )
    swap: bool = Field(False, description="the file has the target language first")
    sentences: Annotated[tuple[str, ...], FilePath()] = Field(
        (), description="weekly per-language sentences, one file or several; needs links"
    )
    links: Annotated[str | None, FilePath()] = Field(None, description="weekly links of the pair")
    url: Annotated[str | None, NotHashed()] = Field(
        None,
        description="a mirror of the weekly exports, or the address of one file of pairs; beside `file`, where "
        "that file can be downloaded",
    )
    sha256: Annotated[str | dict[str, str] | None, NotHashed()] = Field(
        None, description="sum that the file must have; for several, by file name"
    )

    @field_validator("sentences", mode="before")
    @classmethod
    def _one_is_a_list(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @field_validator("pair")
    @classmethod
    def _two_codes(cls, given: str) -> str:
        if not re.fullmatch("[a-z]{3,4}-[a-z]{3,4}", given):
            raise ValueError("expected two language codes such as eng-spa")
        return given

    @model_validator(mode="after")
    def _one_origin(self) -> Options:
        if bool(self.sentences) != bool(self.links):
            raise ValueError("sentences and links belong together; give both, or file")
        if self.file and self.links:
            raise ValueError("give file, or sentences and links, not both")
        return self


class Tatoeba(Dataset):
    """Sentence pairs of tatoeba.org, by file or by download."""

    Options: ClassVar[type[BaseOptions]] = Options

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str | None:
        """Return a sum over the files' own sums, or None while one is not here yet."""
        assert isinstance(options, Options)
        sums = [
            fetched_sha256(place, cache) if _is_address(place) else file_sha256(_path(place, options))
            for place in _places(options)
        ]
        if None in sums:
            return None
        return hashlib.sha256(" ".join(map(str, sums)).encode()).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the pairs in the order of the file; rows without a side have an empty text."""
        assert isinstance(options, Options)
        files = [_local(place, options, cache) for place in _places(options)]
        notes: list[str] = []
        if len(files) == 1:
            texts = list(_read_pairs(files[0], options.swap))
        else:
            *sentences, links = files
            texts = _linked(_read_sentences(sentences, options.pair), links, options.pair, notes)
        if not texts:
            raise HeadToHeadError(f"'{files[-1]}' links no sentences of {options.pair}")
        pairs = [Pair(source, target, source) for source, target in texts]
        source, target = options.pair.split("-")
        return Corpus(
            pairs=pairs,
            data_hash=hash_pairs(pairs),
            licence="CC BY 2.0 FR (a part of Tatoeba is CC0)",
            citation="Tatoeba, https://tatoeba.org, CC BY 2.0 FR; files of two or three columns "
            "by way of https://www.manythings.org/anki",
            languages=(LANGUAGES.get(source, source), LANGUAGES.get(target, target)),
            notes=tuple(notes),
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``tatoeba``."""
    return {"tatoeba": Tatoeba}


def _places(options: Options) -> list[str]:
    """Return files or addresses: one with pairs, or sentences first and links last."""
    if options.file:
        return [options.file]
    if options.links:
        return [*options.sentences, options.links]
    base = (options.url or WEEKLY).rstrip("/")
    if base.lower().endswith(PACKED):
        return [base]
    source, target = options.pair.split("-")
    sentences = [f"{base}/{code}/{code}_sentences.tsv.bz2" for code in (source, target)]
    return [*sentences, f"{base}/{source}/{source}-{target}_links.tsv.bz2"]


def _is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _path(place: str, options: Options) -> Path:
    path = Path(place).expanduser()
    if options.url and not path.exists():
        raise HeadToHeadError(f"file '{path}' does not exist; download {options.url} and give its path as file")
    return path


def _local(place: str, options: Options, cache: Path) -> Path:
    name, sums = place.rpartition("/")[2], options.sha256
    expected = sums if isinstance(sums, str | None) else sums.get(name)
    if _is_address(place):
        return fetch(place, cache, sha256=expected)
    path = _path(place, options)
    if expected and (found := file_sha256(path)) != expected.lower():
        raise HeadToHeadError(f"file '{path}' has sha256 {found}, expected {expected.lower()}")
    return path


def _read_pairs(path: Path, swap: bool) -> Iterator[tuple[str, str]]:
    """Yield the two texts of each row; an empty row, or a lacking side, is an empty text."""
    lines = read_lines(path)
    columns = _columns(path, lines)
    first, second = (3, 1) if columns == 4 else (1, 0)
    if not swap:
        first, second = second, first
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t")
        if len(fields) == columns:
            yield fields[first].strip(), fields[second].strip()
        elif len(fields) == 1 and (columns < 4 or not line.strip()):
            yield ("", line.strip()) if swap else (line.strip(), "")
        else:
            raise HeadToHeadError(
                f"file '{path}': line {number} has {len(fields)} columns, expected {columns} as in the lines before"
            )


def _columns(path: Path, lines: Sequence[str]) -> int:
    """Return the number of columns, told from the first line that has a tab."""
    number, fields = next(
        ((number, line.split("\t")) for number, line in enumerate(lines, 1) if "\t" in line), (1, [""])
    )
    numeric = [field.isdigit() for field in fields]
    if len(fields) == 4 and numeric[0] and numeric[2]:
        return 4
    if numeric == [True, True] or (numeric[0] and len(fields) in (3, 6)):
        raise HeadToHeadError(f"file '{path}' is a weekly export; name it with sentences: or links:, not file:")
    if len(fields) in (2, 3):
        return len(fields)
    raise HeadToHeadError(
        f"file '{path}': line {number} has {len(fields)} columns; expected text and text, "
        "with an attribution as third column if there is one, or id, text, id, text, with tabs "
        "between"
    )


def _read_sentences(paths: Sequence[Path], pair: str) -> dict[str, dict[str, str]]:
    """Return the texts of each language of the pair by id."""
    texts: dict[str, dict[str, str]] = {code: {} for code in pair.split("-")}
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            fields = line.split("\t")
            if len(fields) not in (3, 6) or not fields[0].isdigit():
                raise HeadToHeadError(
                    f"file '{path}': line {number} has {len(fields)} columns; expected id, "
                    "language, text, in the detailed form with user and two dates behind"
                )
            if fields[1] in texts and fields[2] != NULL:
                texts[fields[1]][fields[0]] = fields[2].strip()
    for code, found in texts.items():
        if not found:
            named = ", ".join(f"'{path}'" for path in paths)
            raise HeadToHeadError(f"{named} hold no sentence in '{code}'; check pair: {pair}")
    return texts


def _linked(texts: Mapping[str, Mapping[str, str]], path: Path, pair: str, notes: list[str]) -> list[tuple[str, str]]:
    """Return the pairs that the links name, each once, whichever way round it is written."""
    source, target = (texts[code] for code in pair.split("-"))
    found: dict[tuple[str, str], None] = {}
    lost = 0
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise HeadToHeadError(
                f"file '{path}': line {number} has {len(fields)} columns, expected id and translation id"
            )
        one, other = fields
        if one in source and other in target:
            found[one, other] = None
        elif other in source and one in target:
            found[other, one] = None
        else:
            lost += 1
    if lost:
        notes.append(f"{lost} links name a sentence that the files do not hold")
    return [(source[one], target[other]) for one, other in found]
