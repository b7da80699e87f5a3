"""The on-disk cache of prepared data: one file per configuration and corpus, no pickles.

A file is an ``.npz`` of flat id arrays and one JSON document. It is written beside its place and
moved there; a file that cannot be read is named in the log and built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.config.identity import identity_fields
from headtohead.data.prepared import SIDES, USUAL_BOUNDARIES, PreparedData, Side, Split, Tokeniser
from headtohead.data.splits import PARTS
from headtohead.data.vocabulary import Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import DataConfig

FORMAT = 3
"""Raise it whenever preparing the same corpus gives something else."""

log = logging.getLogger(__name__)

_DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)

Array = NDArray[Any]


class PreparedStore:
    """Prepared data of one configuration, by a mark that stands for the corpus."""

    def __init__(self, folder: Path, config: DataConfig, source_sha256: str) -> None:
        self.folder = folder
        self.identity = [FORMAT, identity_fields(config), source_sha256]

    def path(self, mark: str) -> Path:
        """Return the file that holds, or would hold, the prepared data."""
        text = json.dumps([*self.identity, mark], sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}.npz"

    def load(self, mark: str) -> PreparedData | None:
        """Return the prepared data, or None where there is none or the file is damaged."""
        path = self.path(mark)
        if not path.exists():
            return None
        try:
            return _unpack(path)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())
            log.warning("prepared data %s is damaged (%s); building it again", path, reason)
            return None

    def save(self, mark: str, data: PreparedData) -> None:
        """Write the prepared data.

        Raises:
            HeadToHeadError: If the cache folder cannot be written.
        """
        path = self.path(mark)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".new", delete=False) as file:
                _write(Path(file.name), path, _pack(data))
        except OSError as error:
            raise unwritable(self.folder, error) from error


def read_prepared(path: Path) -> PreparedData:
    """Return the prepared data of a file that a store wrote, perhaps on another machine.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    try:
        return _unpack(path)
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise HeadToHeadError(f"prepared data '{path}' cannot be read: {reason}") from error


def unwritable(folder: Path, error: OSError) -> HeadToHeadError:
    """Return the error for a cache folder that cannot be written."""
    return HeadToHeadError(
        f"cannot write to the cache folder '{folder}': {error.strerror or error}; "
        "set H2H_CACHE to a folder with room that can be written"
    )


def _write(new: Path, path: Path, arrays: Mapping[str, Array]) -> None:
    try:
        with new.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _pack(data: PreparedData) -> dict[str, Array]:
    document: dict[str, Any] = {
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


def _unpack(path: Path) -> PreparedData:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        document = json.loads(arrays["document"].tobytes().decode("utf-8", "surrogatepass"))
        splits = {part: _unpack_split(arrays, part, document["splits"][part]) for part in PARTS}
    return PreparedData(
        Vocabulary(*document["vocabularies"]["source"]),
        Vocabulary(*document["vocabularies"]["target"]),
        splits,
        document["record"],
        document["data_hash"],
        {side: _tokeniser(side, *document["tokenisers"][side]) for side in SIDES},
    )


def _values(one: Vocabulary | Tokeniser) -> list[Any]:
    return [getattr(one, field.name) for field in fields(one)]


def _tokeniser(side: Side, normalise: str, subwords: str | None, *bounds: Any) -> Tokeniser:
    """Read a tokeniser; files from before boundaries could be chosen do not name them."""
    return Tokeniser(normalise, subwords, *(bounds or (USUAL_BOUNDARIES[side],)))


def _unpack_split(arrays: Mapping[str, Array], part: str, texts: list[Any]) -> Split:
    source_text, target_text, others = texts
    references = [(own, *rest) for own, rest in zip(target_text, others or [[]] * len(target_text), strict=True)]
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
