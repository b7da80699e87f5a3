"""A stack in one archive: how it travels to a machine that does not see its folder, and back.

Names in the archive are relative to the experiment's folder, so that what comes back lies where it
would have been written. Claims and what the shipper keeps stay at home.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headtohead.runs import files, objects
from headtohead.runs.stack import STACKS, StackFolder

STAY = {"claim.json", "claim.lock", "mlflow.json", ".mark"}
"""What belongs to the machine it was written on."""

RECORD = "stack.json"
STATUS = "status.json"
PLUGINS = ".plugin-files"
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
        for number, file in enumerate(folder.record.plugin_files):
            archive.writestr(f"{PLUGINS}/{number}/{Path(file).name}", Path(file).read_bytes())
    return buffer.getvalue()


def unpack(parcel: bytes, prepared: bytes, place: Path) -> Path:
    """Lay a stack out under ``place`` with the file of its prepared data; return its folder."""
    experiment = place / "experiment"
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        archive.extractall(experiment)
    (place / "prepared.npz").write_bytes(prepared)
    (record_file,) = experiment.glob(f"{STACKS}/*/{RECORD}")
    folder = StackFolder(record_file.parent)
    folder.write(replace(
        folder.record,
        cache=str(place / "cache"),
        prepared=str(place / "prepared.npz"),
        plugin_files=sorted(str(path) for path in experiment.glob(f"{PLUGINS}/*/*.py")),
    ))  # fmt: skip
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
    with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
        names = [name for name in archive.namelist() if _comes_back(name)]
        for name in sorted(names, key=lambda name: (Path(name).name == STATUS, name)):
            path = folder.experiment / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.read(name)
            if path.exists() and path.read_bytes() == content:
                continue
            files.replace(path, lambda temporary, content=content: temporary.write_bytes(content))
    resume = folder.resume_path
    if ended and str(resume.relative_to(folder.experiment)) not in names:
        resume.unlink(missing_ok=True)


def _travelling(folder: StackFolder) -> Iterator[Path]:
    for part in (folder.path, *(run.path for run in folder.runs())):
        for path in sorted(part.rglob("*")):
            if path.is_file() and path.name not in STAY and not path.name.endswith(".tmp"):
                yield path
    plugins = folder.experiment / objects.NAME
    if plugins.exists():
        yield plugins


def _comes_back(name: str) -> bool:
    """Whether a file is a result; the rest is as it was sent, with this machine's paths."""
    return Path(name).name not in {RECORD, objects.NAME} and not name.startswith(PLUGINS)
