"""A stack in one archive: how it travels to a machine that does not see its folder, and back.

Names in the archive are relative to the experiment's folder, so that what comes back lies where it
would have been written. Leases, locks and what the shipper keeps stay at home.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage.paths import inside
from headtohead.storage.records import STATUS
from headtohead.storage.stack import RECORD, STACKS, StackFolder

STAY = {"stack.lock", "mlflow.json", ".mark"}
"""What belongs to the machine it was written on."""

HEAVY = ".safetensors"


def pack(stack: Path, *, heavy: bool = True) -> bytes:
    """Return the files of a stack and its runs; without ``heavy``, no weights and no maps."""
    folder = StackFolder(stack)
    buffer = io.BytesIO()
    # Stored, not compressed: nearly all of it is weights.
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in _travelling(folder):
            if heavy or path.suffix != HEAVY:
                # A worker at work may take its resume point away between listing and reading.
                with suppress(FileNotFoundError):
                    name = str(path.relative_to(folder.experiment))
                    archive.writestr(name, path.read_bytes())
    return buffer.getvalue()


def unpack(parcel: bytes, prepared: bytes, place: Path) -> Path:
    """Lay a stack out under ``place`` with the file of its prepared data; return its folder."""
    experiment = place / "experiment"
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        archive.extractall(experiment)
    (place / "prepared.npz").write_bytes(prepared)
    (record_file,) = experiment.glob(f"{STACKS}/*/{RECORD}")
    folder = StackFolder(record_file.parent)
    folder.write(replace(folder.record, cache=str(place / "cache"), prepared=str(place / "prepared.npz")))
    for run in folder.runs():
        (run.path / "attempts").mkdir(exist_ok=True)
    return folder.path


def put_back(parcel: bytes, stack: Path, *, ended: bool) -> None:
    """Put what came back in place of what lies there, file by file, each in one step.

    What is the same already stays: a copy says every few seconds how far it is, and writing through
    to the disk takes time. A run's status is put there last, as its worker writes it: DONE means
    complete. A resume point that its worker has removed is removed here too, when the worker has
    ``ended``.
    """
    folder = StackFolder(stack)
    parts = _parts(folder)
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        # The record stays as it was written here, with the paths of this machine.
        names = [name for name in archive.namelist() if Path(name).name != RECORD]
        for name in sorted(names, key=lambda name: (Path(name).name == STATUS, name)):
            path = inside(folder.experiment, name)
            if not any(path.is_relative_to(part) for part in parts):
                raise HeadToHeadError(f"'{name}' came back and is no part of '{folder.path}'")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.read(name)
            if path.exists() and path.read_bytes() == content:
                continue
            files.replace(path, lambda temporary, content=content: temporary.write_bytes(content))
    resume = folder.resume_path
    if ended and str(resume.relative_to(folder.experiment)) not in names:
        resume.unlink(missing_ok=True)


def _parts(folder: StackFolder) -> list[Path]:
    """Return the folders that travel: the stack's and those of its runs."""
    return [folder.path, *(run.path for run in folder.runs())]


def _travelling(folder: StackFolder) -> Iterator[Path]:
    for part in _parts(folder):
        for path in sorted(inside(part, tree=True).rglob("*")):
            if path.is_file() and path.name not in STAY and not path.name.endswith(files.TEMPORARY):
                yield path
