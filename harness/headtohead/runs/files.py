"""Writing files so that a crash at any moment leaves either the old content or the new."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Replace the file in one step: temporary file, fsync, rename."""
    replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def replace(path: Path, write: Any) -> None:
    """Call ``write`` with a temporary path beside ``path``, sync it, rename it over ``path``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def append_lines(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Append JSON lines and sync them."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with path.open("a", encoding="utf-8") as handle:
        # A line torn by a crash must not swallow the one that follows it.
        if handle.tell() and not _ends_with_newline(path):
            handle.write("\n")
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())


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
