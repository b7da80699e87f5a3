"""Atomic writes, and reading of JSON. After a crash, a file has either its old or its new content."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headtohead.errors import HeadToHeadError

TEMPORARY = ".tmp"
"""Suffix of temporary files."""


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
    # The name is unpredictable, so that no symbolic link can exist there in advance.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        write(temporary)
        if sync:
            with temporary.open("rb") as handle:
                os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary(folder: Path) -> None:
    """Remove temporary tensor files that killed processes left behind; the caller holds the folder's lease.

    Temporary files of other formats are kept: they are small, and processes without a lease write some of them.
    """
    for path in folder.glob(f".*.safetensors.*{TEMPORARY}"):
        path.unlink(missing_ok=True)


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


def sha256(path: Path) -> str:
    """Return the sha256 of a file's content in hexadecimal digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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
