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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead import files, ownership
from headtohead.config.identity import identity_fields
from headtohead.data.prepared import PreparedData, Split
from headtohead.data.reading import open_file
from headtohead.data.splits import PARTS
from headtohead.data.tokeniser import SIDES, Tokeniser, Unit
from headtohead.data.vocabulary import Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import DataConfig
from headtohead_judge.child import max_data_bytes

FORMAT = 19
"""Increase it whenever preparing the same corpus gives another result or another file."""

SET_CACHE = "set H2H_CACHE to a writable folder with free space"

log = logging.getLogger(__name__)

DIGEST_BYTES = 32
SIZE_FACTOR = 4
"""Maximum size of a file of prepared data, in sizes of the largest data file."""
_DAMAGE = (
    HeadToHeadError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
)

Array = NDArray[Any]


def data_identity(config: DataConfig, source_sha256: str) -> list[Any]:
    """Return what prepared data depend on besides the corpus, as JSON values."""
    fields = identity_fields(config)
    # Also the options outside the hash: which file is which, checksums.
    fields["options"] = config.options.model_dump(mode="json")
    return [FORMAT, fields, source_sha256]


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
            return _unpack(path, self.max_bytes)
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

        with files.writing(self.folder, SET_CACHE):
            ownership.claim(self.folder, [path.name])
            files.replace(path, write)


def _pack(data: PreparedData, key: str) -> dict[str, Array]:
    """Return the arrays of a file: ids by part and side, and the JSON document with everything else."""
    arrays: dict[str, Array] = {}
    texts: dict[str, list[list[str]]] = {}
    further_references: dict[str, list[list[str]]] = {}
    for part, split in data.splits.items():
        texts[part] = [split.source_text, split.target_text]
        if part != "train":
            further_references[part] = [list(accepted[1:]) for accepted in split.references]
        for side in SIDES:
            ids = split.ids(side)
            arrays[f"{part}.{side}.ids"] = np.concatenate(ids)
            arrays[f"{part}.{side}.ends"] = np.cumsum([len(sentence) for sentence in ids])
        arrays[f"{part}.groups"] = np.array(split.groups, dtype=np.int32)
        if split.labels is not None:
            arrays[f"{part}.labels"] = np.concatenate(split.labels)
    document: dict[str, Any] = {
        "key": key,
        "record": data.record,
        "data_hash": data.data_hash,
        "tokenisers": {side: asdict(data.tokenisers[side]) for side in SIDES},
        "texts": texts,
        "further_references": further_references,
    }
    text = json.dumps(document, ensure_ascii=False)
    arrays["document"] = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    return arrays


def _unpack(path: Path, max_bytes: int) -> PreparedData:
    """Return the prepared data of a file; every damage raises one of the errors in `_DAMAGE`."""
    with open_file(path, max_bytes) as file:
        if file.read(DIGEST_BYTES) != hashlib.file_digest(file, "sha256").digest():
            raise ValueError("its content does not have its sha256")
        file.seek(DIGEST_BYTES)
        with np.load(file, allow_pickle=False) as arrays:
            document = json.loads(arrays["document"].tobytes().decode("utf-8", "surrogatepass"))
            if document["key"] != path.stem:
                raise ValueError("it belongs to another configuration")
            splits = {part: _unpack_split(part, document, arrays) for part in PARTS}
    tokenisers = {side: _tokeniser(document["tokenisers"][side]) for side in SIDES}
    return PreparedData(tokenisers, splits, document["record"], document["data_hash"])


def _unpack_split(part: str, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Split:
    source_text, target_text = document["texts"][part]
    further_references = document["further_references"].get(part)
    if further_references is None:  # those of train
        further_references = [()] * len(target_text)
    references = []
    for text, further in zip(target_text, further_references, strict=True):
        references.append((text, *further))
    source_ends = arrays[f"{part}.source.ends"]
    target_ends = arrays[f"{part}.target.ends"]
    labels = None
    if f"{part}.labels" in arrays:
        labels = _sentences(arrays[f"{part}.labels"], target_ends)
    return Split(
        _sentences(arrays[f"{part}.source.ids"], source_ends),
        _sentences(arrays[f"{part}.target.ids"], target_ends),
        source_text,
        target_text,
        references,
        arrays[f"{part}.groups"].tolist(),
        labels,
    )


def _tokeniser(fields: Mapping[str, Any]) -> Tokeniser:
    unit = Unit(**fields["unit"])
    vocabulary = Vocabulary(**fields["vocabulary"])
    return Tokeniser(**{**fields, "unit": unit, "vocabulary": vocabulary})


def _sentences(ids: Array, ends: Array) -> list[Array]:
    """Return the ids of each sentence; ``ends`` has the number of ids up to the end of each."""
    sentences = []
    start = 0
    for end in ends.tolist():  # np.split takes four times as long
        sentences.append(ids[start:end])
        start = end
    return sentences
