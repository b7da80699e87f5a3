"""The files that headtohead writes into the folder of an experiment: their names, sizes and deletion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headtohead import files
from headtohead.ownership import delete
from headtohead.storage.experiment import EXPERIMENT, REFERENCE_POINTS
from headtohead.storage.run import METRICS, RESULT_FILES, RUN, STATUS

RECORDS = (RUN, EXPERIMENT, "stack.json")

PATTERNS = (
    *RECORDS,
    STATUS,
    METRICS,
    *RESULT_FILES,
    "attempts/*.json",
    f"attempts/*.{METRICS}",
    REFERENCE_POINTS,
    "shipper*.log",
    ".layout.lock",
    ".leases/*.json",
    ".leases/*.lock",
    ".loggers/*.json",
    ".loggers/*.lock",
    ".loggers/*-files/*",
    ".loggers/*-files/*/*",
    ".stacks/*/stack.lock",
    ".stacks/*/initial.safetensors",
    ".stacks/*/resume-*.safetensors",
    ".stacks/*/worker.log",
    ".stacks/*/progress.json",
    ".stacks/*/folder-token",
    ".stacks/*/slurm-job",
    f".*.{'?' * 32}{files.TEMPORARY}",
)
"""Patterns of the ends of paths; docs/reference/run-directory.md describes the files."""

TRACES = (
    EXPERIMENT,
    REFERENCE_POINTS,
    ".layout.lock",
    ".leases",
    ".stacks",
    ".loggers",
    ".archived",
    ".reproduced",
    "shipper-*.log",
    f"*/{RUN}",
)
"""Patterns of paths that only the folder of an experiment has, even if its record is missing."""


def has_traces_of_experiment(folder: Path) -> bool:
    """Return whether a folder belongs to an experiment, even if its record is missing.

    Raises:
        OSError: If the folder cannot be listed.
    """
    os.listdir(folder)  # `glob` ignores errors
    return any(path for pattern in TRACES for path in folder.glob(pattern))


def run_files(folder: Path) -> list[Path]:
    """Return the files below a run directory, an experiment or a stack that headtohead wrote; the records are last.

    Symbolic links are not followed.
    """
    written = []
    for path in _files_below(folder):
        if any(path.match(pattern) for pattern in PATTERNS):
            written.append(path)
    return sorted(written, key=lambda path: (path.name in RECORDS, path))


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without following symbolic links."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def delete_run_files(folder: Path) -> None:
    """Delete a run directory, an experiment or a stack with its empty folders; files of others stay.

    The records are deleted last, so that an interrupted deletion can be repeated.
    """
    delete(folder, run_files(folder))
    for parent, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty
            Path(parent).rmdir()


def disk_usage(path: Path) -> tuple[int, float]:
    """Return the bytes of a file or folder on disk, and its last change in seconds since 1970 (0 if empty).

    Symbolic links are not followed. Files that disappear or cannot be read during the count are ignored.
    """
    size = 0
    last_change = 0.0
    for file in _files_below(path) if path.is_dir() else [path]:
        with suppress(OSError):
            state = file.lstat()
            size += state.st_blocks * 512
            last_change = max(last_change, state.st_mtime)
    return size, last_change


def show_size(size: int) -> str:
    """Format a number of bytes.

    >>> show_size(0), show_size(1_500_000), show_size(23_400_000_000)
    ('0 kB', '1.5 MB', '23.4 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
