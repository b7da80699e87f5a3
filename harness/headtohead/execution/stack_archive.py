"""ZIP archives of stacks, for machines that cannot access the stack's folder.

Names in the archive are relative to the experiment's folder. Leases, locks and files of the shipper are excluded.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.records import STATUS
from headtohead.storage.stack import RECORD, STACKS, StackFolder

FOLDER_TOKEN = "folder-token"
"""File in a stack's folder with a random token, by which another machine verifies that it is the same folder."""

EXCLUDED = {"stack.lock", "mlflow.json", FOLDER_TOKEN}
"""Files that are valid only on the machine that wrote them."""

TENSORS = ".safetensors"


def pack(stack: Path, *, tensors: bool = True) -> bytes:
    """Return an archive of a stack and its runs.

    Without ``tensors``, weights and maps are excluded, and so are runs that are DONE, since these require them.
    """
    folder = StackFolder(stack)
    buffer = io.BytesIO()
    # Not compressed, because nearly all of it is weights.
    with zipfile.ZipFile(buffer, "w") as archive:
        parts = [folder.path, *(run.path for run in folder.runs() if tensors or run.state != states.DONE)]
        for path in _files(parts):
            if tensors or path.suffix != TENSORS:
                # The worker may remove its resume point between listing and reading.
                with suppress(FileNotFoundError):
                    name = str(path.relative_to(folder.experiment))
                    archive.writestr(name, path.read_bytes())
    return buffer.getvalue()


def unpack(archive_bytes: bytes, prepared: bytes, root: Path) -> Path:
    """Extract a stack and its prepared data below ``root``; return the stack's folder."""
    experiment = root / "experiment"
    with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
        archive.extractall(experiment)
    (root / "prepared.npz").write_bytes(prepared)
    (record_file,) = experiment.glob(f"{STACKS}/*/{RECORD}")
    folder = StackFolder(record_file.parent)
    folder.write(replace(folder.record, cache=str(root / "cache"), prepared=str(root / "prepared.npz")))
    for run in folder.runs():
        (run.path / "attempts").mkdir(exist_ok=True)
    return folder.path


def put_back(archive_bytes: bytes, stack: Path, *, ended: bool) -> None:
    """Replace the files of a stack and its runs by those of an archive, each file atomically.

    Equal files are not rewritten, since archives arrive every few seconds and fsync takes time. The status of a run
    is written last, as its worker does, so that a DONE run is complete. If the worker has ``ended``, or the archive
    has a resume point, resume points that are not in the archive are removed.
    """
    folder = StackFolder(stack)
    parts = [folder.path, *(run.path for run in folder.runs())]
    with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
        # The local record is kept, since it has the paths of this machine, and gets the worker's notes.
        record = str((folder.path / RECORD).relative_to(folder.experiment))
        if record in archive.namelist():
            for note in json.loads(archive.read(record)).get("notes", []):
                folder.note(note)
        names = [name for name in archive.namelist() if Path(name).name != RECORD]
        for name in sorted(names, key=lambda name: (Path(name).name == STATUS, name)):
            path = inside(folder.experiment, name)
            if not any(path.is_relative_to(part) for part in parts):
                raise HeadToHeadError(f"the archive contains '{name}', which is not part of '{folder.path}'")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.read(name)
            if path.exists() and path.read_bytes() == content:
                continue
            files.replace(path, lambda temporary, content=content: temporary.write_bytes(content))
    points = folder.resume_points.newest_first()
    received = {point.path for point in points if str(point.path.relative_to(folder.experiment)) in names}
    for point in points:
        if (ended or received) and point.path not in received:
            point.path.unlink(missing_ok=True)


def _files(parts: Sequence[Path]) -> Iterator[Path]:
    for part in parts:
        for path in sorted(inside(part, tree=True).rglob("*")):
            if path.is_file() and path.name not in EXCLUDED and not path.name.endswith(files.TEMPORARY):
                yield path
