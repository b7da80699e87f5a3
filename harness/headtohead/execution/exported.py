"""Folders of exported models: weights, record and vocabularies, without the study and the data.

``model.safetensors`` holds the weights, ``config.json`` the record of the run with its configuration,
``vocabulary.json`` the tokenisers of both sides with their words. For other programs, the tokenizer of a side with
subwords is also in ``tokenizer.source.json`` or ``tokenizer.target.json``. ``manifest.json`` has the sha256 of every
other file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors.numpy import save

from headtohead import files, ownership
from headtohead.data.prepared import PreparedData
from headtohead.data.tokeniser import SIDES, Side, Tokeniser
from headtohead.errors import HeadToHeadError
from headtohead.storage.record import Record, Sha256, read_record, required_record
from headtohead.storage.run import RunRecord

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
VOCABULARIES = "vocabulary.json"
CARD = "README.md"
LOADED = (WEIGHTS, CONFIG, VOCABULARIES)
"""The files that `load` reads; an imported checkpoint may have no vocabularies."""

TOKENIZERS: dict[Side, str] = {"source": "tokenizer.source.json", "target": "tokenizer.target.json"}
MANIFEST = "manifest.json"
FILES = (WEIGHTS, CONFIG, VOCABULARIES, CARD, *TOKENIZERS.values(), MANIFEST)
MOVE_AWAY = "move it away, or choose another folder"
AGAIN = "export the run again to another folder"


class ExportRecord(Record):
    """``config.json``: the record of the run."""

    format: Literal["headtohead-model/1"] = "headtohead-model/1"
    model_type: Literal["headtohead"] = "headtohead"
    run: RunRecord


class ManifestRecord(Record):
    """``manifest.json``: the sha256 of every other file of the model, by name."""

    format: Literal["headtohead-manifest/1"] = "headtohead-manifest/1"
    files: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z.]+$")], Sha256]


class ExportedVocabularies(Record):
    """``vocabulary.json``."""

    format: Literal["headtohead-vocabulary/3"] = "headtohead-vocabulary/3"
    source: Tokeniser
    target: Tokeniser


def check_target(folder: Path, *, force: bool) -> None:
    """Raise unless a model can be written to a folder, which need not exist; nothing is written.

    Args:
        folder: The folder.
        force: Whether it may have files; those with names of the model must be as headtohead wrote them.

    Raises:
        HeadToHeadError: If ``folder`` is a file; if it is not empty and ``force`` is not set; or if a file in it has
            the name of a file of the model, but not the content that headtohead wrote.
    """
    if folder.exists() and not folder.is_dir():
        raise HeadToHeadError(f"'{folder}' is a file; choose a folder")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise HeadToHeadError(
            f"folder '{folder}' is not empty; choose another, or --force to replace the model in it"
        )
    ownership.refuse_foreign(folder, FILES, MOVE_AWAY)


def write_exported(
    folder: Path,
    record: RunRecord,
    weights: Mapping[str, NDArray[np.generic]],
    words: PreparedData | None,
    card: str,
) -> list[Path]:
    """Write a model to a folder and return the paths of its files.

    Files of an earlier model that this model does not have, such as a tokenizer, are removed if headtohead wrote them.
    All other files stay, also those that headtohead wrote, such as a report. ``manifest.json`` has the sha256 of every
    file of the model. The manifest of `ownership` lists all of them as written by headtohead.

    Args:
        folder: The folder; it is created.
        record: The run's record. Absolute paths in it are shortened to names.
        weights: Weights by name, without the dimension of members.
        words: Vocabularies and tokenisers; None for a model of ids.
        card: The text of ``README.md``.

    Raises:
        HeadToHeadError: If the folder cannot be written; or if a file to be written exists with a content that
            headtohead did not write, and then nothing is written.
    """
    portable = RunRecord.model_validate(_without_folders(record.to_json()))
    tensors = {name: np.ascontiguousarray(values) for name, values in weights.items()}
    # The largest file is written first: a full disk leaves the earlier model.
    contents = {WEIGHTS: save(tensors, {"format": "pt"})}
    contents[CONFIG] = _json(ExportRecord(run=portable)).encode()
    contents[CARD] = card.encode()
    if words is not None:
        tokenisers = words.tokenisers
        vocabularies = ExportedVocabularies(
            source=tokenisers["source"], target=tokenisers["target"]
        )
        contents[VOCABULARIES] = _json(vocabularies).encode()
        for side in SIDES:
            subwords = tokenisers[side].unit.subwords
            if subwords:
                contents[TOKENIZERS[side]] = subwords.encode()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[MANIFEST] = _json(ManifestRecord(files=hashes)).encode()
    with files.writing(folder, "free space, or choose another folder"):
        ownership.write(folder, contents, MOVE_AWAY)
        ownership.remove(folder, set(FILES) - contents.keys())
    return [folder / name for name in contents]


def read_exported(folder: Path) -> tuple[RunRecord, PreparedData | None]:
    """Return record and vocabularies of the model in a folder; None for an imported checkpoint without vocabularies.

    Every file of the manifest, also that of the weights, is compared with its sha256, except the card, which may be
    edited or missing. The weights are not loaded. Files outside the manifest that `load` does not read are ignored. The
    vocabularies have no splits.

    Raises:
        HeadToHeadError: If the manifest, the record or a file that the manifest lists is missing or damaged; if the
            vocabularies are damaged, or missing in the model of a run that was not imported; or if a file that `load`
            reads exists and has no sha256 in the manifest.
    """
    hashes = required_record(ManifestRecord, folder / MANIFEST, AGAIN).files
    for name in LOADED:
        if name not in hashes and os.path.lexists(folder / name):
            raise HeadToHeadError(f"{MANIFEST} has no sha256 of '{folder / name}'; {AGAIN}")
    for name in hashes.keys() - {CARD}:
        path = folder / name
        if not path.is_file():
            raise HeadToHeadError(f"'{path}' is missing; {AGAIN}")
        if files.sha256(path) != hashes[name]:
            raise HeadToHeadError(
                f"'{path}' is damaged: its sha256 is not that in {MANIFEST}; {AGAIN}"
            )
    run = required_record(ExportRecord, folder / CONFIG, AGAIN).run
    sides = read_record(ExportedVocabularies, folder / VOCABULARIES, files.LARGE_BYTES)
    if sides is None:
        if run.imported is None:
            raise HeadToHeadError(f"'{folder}' has no {VOCABULARIES}; {AGAIN}")
        return run, None
    tokenisers: dict[Side, Tokeniser] = {"source": sides.source, "target": sides.target}
    return run, PreparedData(tokenisers, {}, dict(run.data), run.data["data_hash"])


def _without_folders(value: Any) -> Any:
    """Return the record with names instead of absolute paths, which mean nothing on another machine."""
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name or value
    if isinstance(value, dict):
        return {name: _without_folders(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return value


def _json(record: Record) -> str:
    return json.dumps(record.to_json(), indent=2, ensure_ascii=False) + "\n"
