"""pairs: sentence pairs of your own, from tables, JSON Lines, parallel text files or Hugging Face datasets."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from headtohead.data import Format, Row, call_in_child, file_sha256, read_lines, read_rows
from headtohead.plugin import Corpus, Dataset, FilePath, HeadToHeadError, Pair, hookimpl
from headtohead.plugin import Options as BaseOptions

Column = Annotated[int, Field(ge=1, le=10_000)] | str
FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
PACKED = (".gz", ".bz2", ".xz", ".zip")
PARTS = {"train": "train", "valid": "valid", "validation": "valid", "dev": "valid", "test": "test"}
"""Parts by the name that a Hugging Face dataset gives them."""
COLUMN_NAMES = {"source", "target", "src", "tgt", "trg", "input", "output", "text", "sentence", "translation", "prompt",
                "completion", "question", "answer", "english", "french", "german", "spanish", "en", "fr", "de", "es",
                "eng", "fra", "deu", "spa"}  # fmt: skip
"""Words of column names: a first line in which two fields have no other words is a header."""
REMEDIES = {
    "tsv": "correct the tabs, data.format or data.columns",
    "csv": "put quotation marks around a text with a comma, or correct data.format or data.columns",
    "jsonl": "correct the file or data.columns",
}
"""What to do about a malformed line, by format."""
MAX_NAMES = 20
"""Maximum number of names of a JSON object in a message."""
LEAST_DATASETS = 4
"""Oldest major version of the package datasets that does not run code of a dataset."""
HUB_SECONDS = 3600
"""Maximum time of a download from the hub."""


class Options(BaseOptions):
    """Where the pairs are, and which columns hold them."""

    file: Annotated[tuple[str, ...], FilePath()] = Field(
        (),
        description="one file with both sides, or [source file, target file] with a sentence per line",
    )
    valid_file: Annotated[tuple[str, ...], FilePath()] = Field(
        (), description="pairs for validation, like `file`"
    )
    test_file: Annotated[tuple[str, ...], FilePath()] = Field(
        (), description="pairs for the test, like `file`"
    )
    format: Format | None = Field(
        None, description="tsv, csv or jsonl; default: by the ending of the file's name"
    )
    columns: tuple[Column, Column] | None = Field(
        None,
        description="source and target: numbers from 1, names in the first line, or fields of JSON such as "
        "translation.en; default: [1, 2] in a table of two columns, for JSON [source, target]",
    )
    header: bool | None = Field(
        None, description="whether the first line has names; default: if `columns` are names"
    )
    saved: Annotated[str | None, FilePath()] = Field(
        None, description="folder of a Hugging Face dataset, written by its save_to_disk"
    )
    hub: str | None = Field(None, description="name of a dataset on the Hugging Face hub")
    configuration: str | None = Field(None, description="configuration of the dataset on the hub")
    revision: str | None = Field(
        None, description="commit of the dataset on the hub, for equal data in every run"
    )
    join_targets: bool = Field(
        False,
        description="split grouped: pairs with a common target, too, are in the same part, as for translations",
    )
    skip_malformed: bool = Field(
        False, description="skip and count malformed rows instead of refusing the file"
    )
    languages: tuple[str, str] = Field(
        ("source", "target"), description="names of the languages, for reports"
    )
    licence: str = Field("not stated", description="licence of the data, for reports")
    citation: str = Field("not stated", description="where the data was published, for reports")

    @field_validator("file", "valid_file", "test_file", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        # A list is no tuple for pydantic's strict mode after a validator in Python.
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Options:
        is_set = [bool(value) for value in (self.file, self.saved, self.hub)]
        if is_set.count(True) != 1:
            raise ValueError("set one of data.file, data.saved and data.hub")
        if (self.saved or self.hub) and (self.valid_file or self.test_file):
            raise ValueError(
                "valid_file and test_file belong to file; a Hugging Face dataset has its own splits"
            )
        if self.columns and self.columns[0] == self.columns[1]:
            raise ValueError(f"columns are two different columns, got {self.columns[0]} twice")
        if (self.configuration or self.revision) and not self.hub:
            raise ValueError("configuration and revision belong to hub")
        numbers = [len(files) for files in (self.file, self.valid_file, self.test_file)]
        if max(numbers) > 2:
            too_many = next(number for number in numbers if number > 2)
            raise ValueError(
                f"expected one file or [source file, target file], got {too_many} files"
            )
        if 1 not in numbers:
            self._refuse_table_options()
        return self

    def _refuse_table_options(self) -> None:
        """Raise an error for options of tables, which parallel files and Hugging Face datasets are not."""
        names = ["format", "header"]
        if self.file:
            names.append("columns")
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} belongs to tables: one file with both sides")


class Pairs(Dataset):
    """Sentence pairs from TSV, CSV, JSON Lines, parallel text files or a Hugging Face dataset.

    Pairs of ``valid_file`` and ``test_file``, and of the splits of a Hugging Face dataset, keep their part. A part
    without a file or split is taken from ``file`` or ``train`` by the split.
    """

    phrase = "sentence pairs"
    Options: ClassVar[type[BaseOptions]] = Options
    normalise: ClassVar[str] = "none"

    @classmethod
    def given_parts(cls, options: BaseOptions) -> frozenset[str]:
        """Return the parts of separate files, or all parts of a dataset with its own splits."""
        assert isinstance(options, Options)
        if options.saved or options.hub:
            return frozenset(PARTS.values())
        separate = _separate_parts(options)
        return frozenset(["train", *separate]) if separate else frozenset()

    @classmethod
    def cache_key(cls, options: BaseOptions, split: str, cache: Path) -> str | None:
        """Return a hash of the sha256 of all files; None for Hugging Face datasets."""
        assert isinstance(options, Options)
        if not options.file:
            return None
        files = [*options.file, *options.valid_file, *options.test_file]
        hashes = [file_sha256(_path(name)) for name in files]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Return the pairs in the order of the files; a missing side is an empty text."""
        assert isinstance(options, Options)
        notes: list[str] = []
        pairs = _from_files(options, notes) if options.file else _from_hugging_face(options)
        if not pairs:
            raise HeadToHeadError(f"'{_name(options)}' has no pairs")
        return Corpus(
            pairs=pairs,
            licence=options.licence,
            citation=options.citation,
            languages=options.languages,
            notes=tuple(notes),
            targets_join=options.join_targets,
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"pairs": Pairs}


def _from_files(options: Options, notes: list[str]) -> list[Pair]:
    """Return the pairs of all files; those of ``file`` belong to train if another part has a file."""
    separate = _separate_parts(options)
    part_of_file = "train" if len(separate) == 2 else None
    pairs: list[Pair] = []
    for part, files in (
        (part_of_file, options.file),
        ("valid", options.valid_file),
        ("test", options.test_file),
    ):
        if not files:
            continue
        texts = _parallel(files) if len(files) == 2 else _table(files[0], options, notes)
        for source, target in texts:
            pairs.append(_pair(source, target, part))
    if len(separate) == 2:
        notes.append("valid and test are separate files")
    elif separate:
        notes.append(f"{separate[0]} is a separate file")
    return pairs


def _separate_parts(options: Options) -> list[str]:
    """Return the parts that have a file of their own."""
    parts = []
    if options.valid_file:
        parts.append("valid")
    if options.test_file:
        parts.append("test")
    return parts


def _pair(source: str, target: str, part: str | None) -> Pair:
    source = _one_line(source)
    return Pair(source, _one_line(target), source, part)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines()).replace("\t", " ").strip()


def _parallel(files: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of two files with a sentence per line."""
    source = read_lines(_path(files[0]))
    target = read_lines(_path(files[1]))
    if len(source) != len(target):
        raise HeadToHeadError(
            f"file '{files[0]}' has {len(source):,} lines and '{files[1]}' {len(target):,}; parallel files have a "
            "sentence and its translation on the same line"
        )
    for name, lines in zip(files, (source, target), strict=True):
        if lines and all("\t" in line for line in lines):
            raise HeadToHeadError(
                f"file '{name}' has a tab in every line; two files have a sentence per line, so join tables to one file"
            )
    return list(zip(source, target, strict=True))


def _table(name: str, options: Options, notes: list[str]) -> list[tuple[str, str]]:
    """Return source and target of each row of a file; rows without both texts are refused or counted."""
    form = options.format or _format(name)
    if options.header and form == "jsonl":
        raise HeadToHeadError(
            f"file '{name}' is JSON Lines, which has no header; leave out data.header"
        )
    rows = read_rows(_path(name), form, is_guessed=options.format is None)
    columns: tuple[Column, Column] = options.columns or ("source", "target")
    if form != "jsonl" and rows:
        rows, columns = _numbered_columns(name, rows, options)
    pairs = list[tuple[str, str]]()
    wrong = list[tuple[int, str]]()
    for row in rows:
        source = _text(row.content, columns[0])
        target = _text(row.content, columns[1])
        if row.problem:
            wrong.append((row.line, row.problem))
        elif source is None or target is None:
            missing = columns[0] if source is None else columns[1]
            problem = f"has no text in column {missing}{_field_names(row.content)}"
            wrong.append((row.line, problem))
        else:
            pairs.append((source, target))
    if not rows:
        raise HeadToHeadError(f"file '{name}' has no pairs; add them, or leave out the file")
    if not wrong:
        return pairs
    line, problem = wrong[0]
    if not options.skip_malformed:
        message = (
            f"file '{name}': line {line} {problem}; wrong lines: {len(wrong)} of {len(rows)}; {REMEDIES[form]}, or set "
            "data.skip_malformed: true"
        )
        if not pairs:
            message += "; for a text without pairs, set data.dataset: text"
        raise HeadToHeadError(message)
    notes.append(
        f"malformed lines of '{PurePath(name).name}' that were skipped: {len(wrong)}, first {line}"
    )
    return pairs


def _numbered_columns(
    name: str, rows: list[Row], options: Options
) -> tuple[list[Row], tuple[int, int]]:
    """Return the rows after the header, if there is one, and the numbers of the columns."""
    columns = options.columns or (1, 2)
    has_names = any(isinstance(column, str) for column in columns)
    if has_names and options.header is False:
        raise HeadToHeadError(
            f"data.columns {list(columns)} are names, but data.header is false; use numbers"
        )
    has_header = has_names or bool(options.header)
    if not has_header and options.header is None:
        _refuse_header(name, rows[0].content)
    if options.columns is None:
        _refuse_more_columns(name, rows)
    names: list[str] = []
    if has_header:
        header, *rows = rows
        if header.problem:
            raise HeadToHeadError(
                f"file '{name}': line {header.line}, the header, {header.problem}; correct it"
            )
        names = [field.strip() for field in header.content]
    source = _number(name, names, columns[0])
    target = _number(name, names, columns[1])
    if source == target:
        raise HeadToHeadError(
            f"file '{name}': data.columns {list(columns)} are the same column; name two columns"
        )
    return rows, (source, target)


def _refuse_more_columns(name: str, rows: Sequence[Row]) -> None:
    """Raise an error for a table of three or more columns: its first two need not be the pair."""
    usual = next(row for row in rows if row.problem is None)
    if len(usual.content) > 2:
        raise HeadToHeadError(
            f"file '{name}' has {len(usual.content)} columns, as in line {usual.line}; set data.columns to those of "
            "source and target, such as [1, 2]; in a csv file, put quotation marks around a text with a comma"
        )


def _number(name: str, names: Sequence[str], column: Column) -> int:
    """Return the number of a column that is a number, or a name in the header."""
    if isinstance(column, int):
        return column
    if column not in names:
        raise HeadToHeadError(
            f"file '{name}' has no column '{column}'; its first line has: {', '.join(names)}"
        )
    if names.count(column) > 1:
        raise HeadToHeadError(
            f"file '{name}' has several columns '{column}'; set data.columns to numbers"
        )
    return names.index(column) + 1


def _refuse_header(name: str, fields: Sequence[str]) -> None:
    """Raise an error if two fields of the first row consist of words of column names, such as ``source_text``."""
    names = [field.strip() for field in fields if _is_column_name(field)]
    if len(names) > 1:
        raise HeadToHeadError(
            f"file '{name}': the first line has column names; set data.columns to two of: {', '.join(names)}, or "
            "data.header: false if it is a pair"
        )


def _is_column_name(field: str) -> bool:
    words = re.findall(r"[^\W\d_]+", field.casefold())
    return bool(words) and COLUMN_NAMES.issuperset(words)


def _field_names(content: Any) -> str:
    """Return the names of a JSON object, for a message; empty for a row of a table."""
    if not isinstance(content, Mapping):
        return ""
    names = [str(name) for name in content]
    return f" (it has: {', '.join(names[:MAX_NAMES])})"


def _format(name: str) -> Format:
    """Return the format of a file by the ending of its name."""
    path = PurePath(name.lower())
    ending = path.suffix
    if ending in PACKED:
        ending = PurePath(path.stem).suffix
    if ending not in FORMATS and path.suffix != ".zip":
        raise HeadToHeadError(
            f"file '{name}': unknown ending '{ending}'; rename it to {', '.join(FORMATS)}, or set data.format"
        )
    return FORMATS.get(ending, "tsv")


def _text(row: Any, column: Column) -> str | None:
    """Return the text of a field of a row, or of nested JSON objects by a dotted name; None if it has no valid text."""
    value = _value(row, column)
    if not isinstance(value, str):
        return None
    # JSON can contain half of a surrogate pair, which cannot be written as UTF-8.
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        return None
    return value


def _value(row: Any, column: Column) -> Any:
    """Return the value of a column, or None."""
    if isinstance(column, int):
        if isinstance(row, list) and len(row) >= column:
            return row[column - 1]
        return None
    if isinstance(row, Mapping) and column in row:
        return row[column]
    value = row
    for part in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _from_hugging_face(options: Options) -> list[Pair]:
    """Return the pairs of a dataset, with the parts of its splits; train has no part if another part is to be taken."""
    try:
        version = importlib.metadata.version("datasets")
        major = int(version.split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        version = "none"
        major = 0
    if major < LEAST_DATASETS:  # older versions run scripts of a dataset
        raise HeadToHeadError(
            f"data.saved and data.hub require the package datasets {LEAST_DATASETS} or later, found {version}; "
            f"run pip install 'datasets>={LEAST_DATASETS}'"
        )
    if options.saved and os.path.isdir(_path(options.saved)):
        _check_saved(_path(options.saved), options.saved)
    rows = call_in_child(
        f"dataset '{_name(options)}'",
        f"{__name__}:read_hugging_face",
        options.model_dump(mode="json"),
        seconds=HUB_SECONDS if options.hub else None,
    )
    return [_pair(*row) for row in rows]


def _check_saved(folder: Path, name: str) -> None:
    """Raise an error for a saved dataset with special files, links, or names of files outside of its folder."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise HeadToHeadError(
                f"dataset '{name}': '{path.relative_to(folder)}' is neither a regular file nor a folder; replace it "
                "by a regular file"
            )
    for path in [*folder.rglob("dataset_dict.json"), *folder.rglob("state.json")]:
        try:
            record = json.loads("\n".join(read_lines(path)))
            names = [*record.get("splits", [])]
            for file in record.get("_data_files", []):
                names.append(file["filename"])
            outside = [entry for entry in names if entry == ".." or PurePath(entry).name != entry]
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise HeadToHeadError(
                f"file '{path}' is no record of a saved dataset; save the dataset again"
            ) from error
        if outside:
            raise HeadToHeadError(
                f"file '{path}' names the file '{outside[0]}' outside of its folder; correct it"
            )


def read_hugging_face(values: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return source, target and part of each row of a dataset; `call_in_child` calls it in a child process."""
    options = Options(**values)
    name = _name(options)
    columns = options.columns or ("source", "target")
    splits = _hugging_face_splits(options)
    for split in splits:
        if split not in PARTS:
            raise HeadToHeadError(
                f"dataset '{name}' has the split '{split}'; expected {', '.join(PARTS)}"
            )
    parts = {PARTS[split] for split in splits}
    texts: list[tuple[str, str, str | None]] = []
    for split, rows in splits.items():
        part: str | None = PARTS[split]
        if len(splits) == 1 or (part == "train" and len(parts) < len({*PARTS.values()})):
            part = None  # the split of the configuration takes the other parts from these rows
        for number, row in enumerate(rows, 1):
            source = _text(row, columns[0])
            target = _text(row, columns[1])
            if source is None or target is None:
                raise HeadToHeadError(
                    f"dataset '{name}', split {split}: row {number} does not have a text in both columns {columns[0]} "
                    f"and {columns[1]}; set data.columns to two of: {', '.join(row)}"
                )
            texts.append((source, target, part))
    return texts


def _hugging_face_splits(options: Options) -> Mapping[str, Any]:
    """Return the rows of each split of a Hugging Face dataset; ``train`` for a dataset without splits."""
    library = importlib.import_module("datasets")
    try:
        if options.saved:
            loaded = library.load_from_disk(str(_path(options.saved)))
        else:
            loaded = library.load_dataset(
                options.hub, options.configuration, revision=options.revision
            )
    except Exception as error:  # errors of the library, of its storage and of the network
        reason = " ".join(str(error).split())
        raise HeadToHeadError(
            f"dataset '{_name(options)}' cannot be loaded: {type(error).__name__}: {reason}"
        ) from error
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}


def _name(options: Options) -> str:
    return options.saved or options.hub or options.file[0]


def _path(name: str) -> Path:
    return Path(os.path.expanduser(name))
