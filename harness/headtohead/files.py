"""Files of the run-directory format: JSON, locks and logs.

`headtohead_judge.files` has atomic writes and limited reading, which the judge needs too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic_core import to_json

from headtohead.errors import HeadToHeadError
from headtohead_judge.files import MAX_BYTES as MAX_BYTES
from headtohead_judge.files import TEMPORARY as TEMPORARY
from headtohead_judge.files import disk_errors as disk_errors
from headtohead_judge.files import opened as opened
from headtohead_judge.files import parse_json as parse_json
from headtohead_judge.files import read_bytes as read_bytes
from headtohead_judge.files import read_text as read_text
from headtohead_judge.files import refuse_foreign as refuse_foreign
from headtohead_judge.files import replace as replace
from headtohead_judge.files import unreadable as unreadable
from headtohead_judge.files import write_text as write_text
from headtohead_judge.files import writing as writing

LARGE_BYTES = 256 * 2**20
"""Maximum size of ``experiment.json``, ``metrics.jsonl`` and ``translations.tsv``."""


def write_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Replace a JSON file atomically; ``sync`` as in `replace`."""
    content = to_json(value, indent=1, inf_nan_mode="constants") + b"\n"
    replace(path, lambda temporary: temporary.write_bytes(content), sync=sync)


@contextmanager
def locked(path: Path, seconds: float, error: Exception) -> Iterator[None]:
    """Hold the lock of a file, which nested uses in a thread share; raise ``error`` if others hold it for too long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path, is_singleton=True).acquire(timeout=seconds)
    except Timeout:
        raise error from None
    with lock:
        yield


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of this user below a folder that killed processes left behind.

    A file that a live process on any host writes is locked, and kept.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.startswith(".") and name.endswith(TEMPORARY):
                with suppress(OSError):
                    _remove_unlocked(Path(parent, name))


def _remove_unlocked(path: Path) -> None:
    """Remove a file of this user; the file of another user stays, and a locked file raises OSError."""
    with open(os.open(path, os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if os.fstat(file.fileno()).st_uid == os.geteuid():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raises as `read_text`, and if the text is not JSON."""
    return parse_json(read_bytes(path), path)


def sha256(path: Path) -> str:
    """Return the sha256 of a file's content in hexadecimal digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def last_line(path: Path) -> str:
    """Return the last line of a log, or ``no message``."""
    try:
        with opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 10_000))
            end = str(file.read(), "utf-8", "replace")
    except (FileNotFoundError, HeadToHeadError):
        return "no message"
    lines = end.strip().splitlines()
    if not lines:
        return "no message"
    return lines[-1].strip()


def append_lines(path: Path, records: list[Mapping[str, Any]]) -> None:
    """Append JSON lines to a file, which must not be a symbolic link, and sync it."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    with disk_errors():
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        with open(descriptor, "wb") as handle:
            size = os.fstat(descriptor).st_size
            # A line that a crash left incomplete must not absorb the next line.
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = "\n" + text
            handle.write(text.encode())
            handle.flush()
            os.fsync(descriptor)
