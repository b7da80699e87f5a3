"""Atomic writes, and reading of JSON. A crash at any moment leaves the old content of a file or the new."""

from __future__ import annotations

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
    """Replace the file in one step: temporary file, fsync, rename."""
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file in one step."""
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"), sync=sync)


def replace(path: Path, write: Any, *, sync: bool = True) -> None:
    """Call ``write`` with a temporary path beside ``path``, then rename it over ``path``.

    Args:
        path: The file to replace.
        write: Writes the new content to the path that it is given, which no other process uses.
        sync: Whether the content must survive a power failure.
    """
    # An unpredictable name: nobody can place a symbolic link there in advance.
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
    """Remove temporary files of tensors that killed processes left; the caller holds the lease of the folder.

    Temporary files of other formats stay: they are small, and processes without a lease write some of them.
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


def append_lines(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Append JSON lines and sync them."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with open(path, "a", encoding="utf-8", opener=_without_link) as handle:
        # A line that a crash left incomplete must not absorb the next line.
        if handle.tell() and not _ends_with_newline(path):
            handle.write("\n")
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())


def _without_link(path: str, flags: int) -> int:
    """Open a file to append to it; a symbolic link in its place is an error."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
