"""Atomic writes, and reading of files of limited size. After a crash, a file has either its old or its new content."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from headtohead_judge.errors import DiskError, HeadToHeadError, disk_errno

TEMPORARY = ".tmp"
"""Suffix of temporary files."""

MAX_BYTES = 64 * 2**20
"""Maximum size of a record that is read as a whole."""

RESTORE = "restore it, or move its folder away"
"""Advice for a record that cannot be read."""


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise a `DiskError` if the disk is full or not writable; the block must not call plugins."""
    try:
        yield
    except Exception as error:
        number = disk_errno(error)
        if number is None or isinstance(error, DiskError):
            raise
        raise DiskError(number, os.strerror(number), getattr(error, "filename", None)) from error


@contextmanager
def writing(path: Path, advice: str) -> Iterator[None]:
    """Turn an error of the file system in the block into a `HeadToHeadError` that ends with ``advice``."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and disk_errno(error) is None:
            raise
        reason = getattr(error, "strerror", None) or error
        raise HeadToHeadError(f"cannot write to '{path}' ({reason}); {advice}") from error


def refuse_foreign(path: Path, is_own: Callable[[bytes], bool], advice: str) -> None:
    """Raise a `HeadToHeadError` that ends with ``advice`` if a file exists and ``is_own`` is false for its content."""
    with writing(path, advice):
        if path.is_file() and not is_own(path.read_bytes()):
            raise HeadToHeadError(f"'{path}' exists and was not written by this command; {advice}")


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths, of files that may not exist yet, name one file, also through links."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    with suppress(OSError):
        return path.samefile(other)
    return False


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically: temporary file, fsync, rename."""
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def replace(path: Path, write: Any, *, sync: bool = True) -> None:
    """Call ``write`` with a temporary path beside ``path``, then rename it over ``path``.

    Args:
        path: The file to replace.
        write: Receives a path that no other process uses, and writes the new content to it.
        sync: Whether the content must survive a power failure.
    """
    with disk_errors():
        while not _replaced(path, write, sync=sync):
            pass


def _replaced(path: Path, write: Any, *, sync: bool) -> bool:
    """Replace a file as `replace` does; return False if another process removed the temporary file as a leftover."""
    # The name is unpredictable, so that no symbolic link can exist there in advance.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        # The lock ends with the process, so that leftovers are recognised.
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if not temporary.exists():  # removed as a leftover before it was locked
            return False
        write(temporary)
        if sync:
            os.fsync(handle)
        os.replace(temporary, path)
        return True
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextmanager
def exclusively(path: Path, seconds: float, error: Exception) -> Iterator[None]:
    """Hold the lock of a file, which is created; raise ``error`` if another process holds it for too long."""
    deadline = time.monotonic() + seconds
    with open(path, "ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise error from None
            time.sleep(0.05)
        yield


@contextmanager
def opened(path: Path, advice: str = RESTORE) -> Iterator[FileIO]:
    """Open a regular file for reading; errors end with ``advice``.

    Raises:
        FileNotFoundError: If there is no such file.
        HeadToHeadError: If the path is a folder, a FIFO or a device, or the file cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise HeadToHeadError(unreadable(path, "not a regular file", advice))
        with open(descriptor, "rb", buffering=0) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise HeadToHeadError(
            unreadable(path, getattr(error, "strerror", None) or str(error), advice)
        ) from error


def read_bytes(path: Path, max_bytes: int = MAX_BYTES, advice: str = RESTORE) -> bytes:
    """Return the content of a regular file; errors end with ``advice``.

    Raises:
        FileNotFoundError: If there is no such file.
        HeadToHeadError: If it is not a regular file, is larger than ``max_bytes``, or cannot be read.
    """
    with opened(path, advice) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            sizes = (
                f"{size / 2**20:,.0f} MiB, more than the maximum of {max_bytes / 2**20:,.0f} MiB"
            )
            raise HeadToHeadError(unreadable(path, sizes, advice))
        return file.read()


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a UTF-8 file; raises as `read_bytes`, and if the text is not UTF-8."""
    return _decoded(read_bytes(path, max_bytes), path)


def _decoded(content: bytes, path: Path) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise HeadToHeadError(unreadable(path, f"not UTF-8 text (byte {error.start})")) from error


def parse_json(content: bytes, path: Path, *, unique_keys: bool = False) -> Any:
    """Return the value of JSON text that was read from ``path``; ``unique_keys`` as in `load_json`.

    Raises:
        HeadToHeadError: If the content is not UTF-8 or not JSON.
    """
    text = _decoded(content, path)
    try:
        return load_json(text, unique_keys=unique_keys)
    except (ValueError, RecursionError) as error:
        raise HeadToHeadError(unreadable(path, f"not valid JSON ({error})")) from error


def load_json(text: str, *, unique_keys: bool = False, **options: Any) -> Any:
    """Return the value of JSON text; ``options`` are those of ``json.loads``.

    Raises:
        ValueError: If the text is not JSON, or has an escaped half of a surrogate pair, which is no text, or, with
            ``unique_keys``, an object has a key twice, of which ``json.loads`` would use the last value.
    """
    if unique_keys:
        options["object_pairs_hook"] = refuse_repeated_keys
    value = json.loads(text, **options)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of JSON pairs; raise `ValueError` for a key that occurs twice."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"the key '{name}' twice")
        content[name] = value
    return content


def unreadable(path: Path | str, reason: str, advice: str = RESTORE) -> str:
    """Return the message for a file that cannot be read, by default a record."""
    return f"cannot read '{path}': {reason}; {advice}"
