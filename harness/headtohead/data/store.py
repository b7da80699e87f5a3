"""Cache of prepared data on disk: one file per configuration and corpus, without pickles.

A file is a sha256 followed by an ``.npz`` archive of flat id arrays and one JSON document, written
atomically. A file that does not have its sha256 or cannot be read is logged and built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead import files, ownership
from headtohead.config.identity import identity_fields
from headtohead.data.prepared import SIDES, PreparedData, Side, Split, Tokeniser
from headtohead.data.reading import max_data_bytes, open_file
from headtohead.data.splits import PARTS
from headtohead.data.vocabulary import Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import DataConfig

FORMAT = 11
"""Increase it whenever preparing the same corpus gives another result or another file."""

log = logging.getLogger(__name__)

DIGEST_BYTES = 32
SIZE_FACTOR = 4
"""Maximum size of a file of prepared data, in sizes of the largest data file."""
_DAMAGE = (HeadToHeadError, OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile)

Array = NDArray[Any]


def data_identity(config: DataConfig, source_sha256: str) -> list[Any]:
    """Return what prepared data depend on besides the corpus, as JSON values."""
    options = config.options.model_dump(mode="json")  # also those outside the hash: which file is which, checksums
    return [FORMAT, identity_fields(config) | {"options": options}, source_sha256]


class PreparedStore:
    """Prepared data of a configuration, by the cache key of the corpus."""

    def __init__(self, folder: Path, identity: list[Any]) -> None:
        self.folder = folder
        self.identity = identity
        self.max_bytes = SIZE_FACTOR * max_data_bytes()

    def path(self, key: str) -> Path:
        """Return the path of the file of the prepared data, which need not exist."""
        text = json.dumps([*self.identity, key], sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.npz"

    def load(self, key: str) -> PreparedData | None:
        """Return the prepared data, or None if the file is missing or damaged."""
        path = self.path(key)
        if not os.path.lexists(path):
            return None
        try:
            return _unpack(path, self.max_bytes, path.stem)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())
            log.warning("prepared data %s is damaged (%s); building it again", path, reason)
            return None

    def save(self, key: str, data: PreparedData) -> None:
        """Write the prepared data.

        Raises:
            HeadToHeadError: If the cache folder cannot be written.
        """
        path = self.path(key)
        arrays = _pack(data, path.stem)

        def write(temporary: Path) -> None:
            with temporary.open("w+b") as file:  # np.savez would append .npz to a path
                file.write(bytes(DIGEST_BYTES))
                np.savez(file, allow_pickle=False, **arrays)
                file.seek(DIGEST_BYTES)
                digest = hashlib.file_digest(file, "sha256").digest()
                file.seek(0)
                file.write(digest)

        try:
            ownership.claim(self.folder, [path.name])
            files.replace(path, write)
        except OSError as error:
            raise unwritable(self.folder, error) from error


def unwritable(folder: Path, error: OSError) -> HeadToHeadError:
    """Return the error for a cache folder that cannot be written."""
    return HeadToHeadError(
        f"cannot write to the cache folder '{folder}': {error.strerror or error}; "
        "set H2H_CACHE to a writable folder with free space"
    )


def _pack(data: PreparedData, key: str) -> dict[str, Array]:
    document: dict[str, Any] = {
        "key": key,
        "record": data.record,
        "data_hash": data.data_hash,
        "vocabularies": {side: _values(data.vocabulary(side)) for side in SIDES},
        "tokenisers": {side: _values(data.tokenisers[side]) for side in SIDES},
        "splits": {
            part: [
                split.source_text,
                split.target_text,
                [list(accepted[1:]) for accepted in split.references] if part != "train" else None,
            ]
            for part, split in data.splits.items()
        },
    }
    text = json.dumps(document, ensure_ascii=False)
    arrays: dict[str, Array] = {"document": np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)}
    for part, split in data.splits.items():
        for side, sequences in (("source", split.source), ("target", split.target)):
            arrays[f"{part}.{side}.ids"] = np.concatenate(sequences)
            arrays[f"{part}.{side}.lengths"] = np.array([len(ids) for ids in sequences], np.int32)
    return arrays


def _unpack(path: Path, max_bytes: int, key: str | None = None) -> PreparedData:
    with open_file(path, max_bytes) as file:
        if file.read(DIGEST_BYTES) != hashlib.file_digest(file, "sha256").digest():
            raise ValueError("its content does not have its sha256")
        file.seek(DIGEST_BYTES)
        with np.load(file, allow_pickle=False) as arrays:
            document = json.loads(arrays["document"].tobytes().decode("utf-8", "surrogatepass"))
            if key not in (None, document["key"]):
                raise ValueError("it belongs to another configuration")
            splits = {part: _unpack_split(arrays, part, document["splits"][part]) for part in PARTS}
    return PreparedData(
        Vocabulary(*document["vocabularies"]["source"]),
        Vocabulary(*document["vocabularies"]["target"]),
        splits,
        document["record"],
        document["data_hash"],
        {side: Tokeniser(*document["tokenisers"][side]) for side in SIDES},
    )


def _values(record: Vocabulary | Tokeniser) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _unpack_split(arrays: Mapping[str, Array], part: str, texts: list[Any]) -> Split:
    source_text, target_text, others = texts
    references = [(own, *further) for own, further in zip(target_text, others or [[]] * len(target_text), strict=True)]
    split = Split(
        _unpack_ids(arrays, part, "source"), _unpack_ids(arrays, part, "target"), source_text, target_text, references
    )
    if not len(split.source) == len(split.target) == len(source_text) == len(target_text):
        raise ValueError(f"the {part} split has columns of different lengths")
    return split


def _unpack_ids(arrays: Mapping[str, Array], part: str, side: Side) -> list[Array]:
    ids, lengths = arrays[f"{part}.{side}.ids"], arrays[f"{part}.{side}.lengths"]
    ends = np.cumsum(lengths).tolist()
    return [ids[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
