"""Size and last change of folders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class DiskUsage(NamedTuple):
    """Number of bytes on disk below a path, and the time of the last change in seconds since 1970 (0 if empty)."""

    size: int
    changed: float


def disk_usage(path: Path) -> DiskUsage:
    """Return the usage of a file or of a folder with everything below it; symbolic links are not followed.

    Files that disappear or cannot be read during the count are ignored.
    """
    below = (Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    size, changed = 0, 0.0
    for file in below if path.is_dir() else [path]:
        with suppress(OSError):
            state = file.lstat()
            size, changed = size + state.st_blocks * 512, max(changed, state.st_mtime)
    return DiskUsage(size, changed)


def show_size(size: int) -> str:
    """Format a number of bytes.

    >>> show_size(0), show_size(1_500_000), show_size(23_400_000_000)
    ('0 kB', '1.5 MB', '23.4 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
