"""Size and last change of folders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DiskUsage:
    """Number of bytes on disk below a path, and the time of the last change in seconds since 1970 (0 if empty)."""

    size: int
    changed: float

    def __add__(self, other: DiskUsage) -> DiskUsage:
        return DiskUsage(self.size + other.size, max(self.changed, other.changed))


def disk_usage(path: Path) -> DiskUsage:
    """Return the usage of a file or of a folder with everything below it; symbolic links are not followed.

    Files that disappear or cannot be read during the count are ignored.
    """
    total = DiskUsage(0, 0.0)
    folders = [path]
    while folders:
        current = folders.pop()
        try:
            entries = list(os.scandir(current))
        except NotADirectoryError:
            state = current.lstat()
            total += DiskUsage(state.st_blocks * 512, state.st_mtime)
            continue
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                else:
                    state = entry.stat(follow_symlinks=False)
                    total += DiskUsage(state.st_blocks * 512, state.st_mtime)
            except OSError:
                continue
    return total


def show_size(size: int) -> str:
    """Format a number of bytes.

    >>> show_size(0), show_size(1_500_000), show_size(23_400_000_000)
    ('0 kB', '1.5 MB', '23.4 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
