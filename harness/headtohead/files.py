"""Atomic writes, and reading of JSON. After a crash, a file has either its old or its new content."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from headtohead.errors import HeadToHeadError

TEMPORARY = ".tmp"
"""Suffix of temporary files."""

SCRATCH = "h2h-scratch-"
"""Prefix of temporary folders."""


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically: temporary file, fsync, rename."""
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file atomically; ``sync`` as in `replace`."""
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"), sync=sync)


def replace(path: Path, write: Any, *, sync: bool = True) -> None:
    """Call ``write`` with a temporary path beside ``path``, then rename it over ``path``.

    Args:
        path: The file to replace.
        write: Receives a path that no other process uses, and writes the new content to it.
        sync: Whether the content must survive a power failure.
    """
    with _temporary(path) as (temporary, handle):
        write(temporary)
        if sync:
            os.fsync(handle)
        os.replace(temporary, path)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, int]]:
    """Create and lock a temporary file beside ``path``; the lock ends with the process, so leftovers are recognised."""
    while True:
        # The name is unpredictable, so that no symbolic link can exist there in advance.
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not temporary.exists():  # removed as a leftover before it was locked
                continue
            yield temporary, handle
            return
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files below a folder that killed processes left behind.

    A file that a live process on any host writes is locked, and kept.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.startswith(".") and name.endswith(TEMPORARY):
                with suppress(OSError):
                    _remove_unlocked(Path(parent, name))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Create a temporary folder for the block, and remove those that killed processes left behind."""
    base = Path(tempfile.gettempdir())
    for leftover in base.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            _remove_unlocked(leftover)
    created = Path(tempfile.mkdtemp(prefix=f".{SCRATCH}"))
    handle = os.open(created, os.O_RDONLY | os.O_DIRECTORY)
    # Only locked folders have the name that makes them leftovers.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    folder = created.rename(base / created.name.removeprefix("."))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _remove_unlocked(path: Path) -> None:
    """Remove a file or folder of this user; raise OSError if a live process has locked it."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(handle)


def read_json(path: Path, parse: Callable[[str], Any] = json.loads) -> Any:
    """Return the content of a JSON file.

    Args:
        path: The file.
        parse: Parses the text; raises ValueError for text that is not JSON.

    Raises:
        FileNotFoundError: If there is no such file.
        HeadToHeadError: If the file cannot be read or is not JSON.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return parse(str(file.read(), "utf-8"))
    except FileNotFoundError:
        raise
    except (ValueError, OSError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or f"not valid JSON ({error})"
        raise HeadToHeadError(f"cannot read '{path}': {reason}; restore it, or move its folder away") from error


def append_lines(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Append JSON lines to a file and sync it."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with open(path, "a", encoding="utf-8", opener=_without_link) as handle:
        # A line that a crash left incomplete must not absorb the next line.
        if handle.tell() and not _ends_with_newline(path):
            handle.write("\n")
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())


def _without_link(path: str, flags: int) -> int:
    """Open a file for appending; raise OSError if it is a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
