"""Writing files so that a crash at any moment leaves either the old content or the new."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
"""How the names of temporary files end."""


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
    # A name that nobody can know: a link laid there would be followed.
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
    """Remove what killed processes wrote of tensors; the caller holds the lease to write them.

    Other files are small, and parents and shippers write some of them too.
    """
    for path in folder.glob(f".*.safetensors.*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def append_lines(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Append JSON lines and sync them."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with open(path, "a", encoding="utf-8", opener=_without_link) as handle:
        # A line torn by a crash must not swallow the one that follows it.
        if handle.tell() and not _ends_with_newline(path):
            handle.write("\n")
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())


def _without_link(path: str, flags: int) -> int:
    """Open a file to append to it; a symbolic link in its place is an error."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a file, without those that a crash tore."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as handle:
        for line in handle:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
