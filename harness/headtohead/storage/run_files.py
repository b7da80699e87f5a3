"""The files that headtohead writes into the folder of an experiment, by their names, and their deletion."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headtohead import files
from headtohead.ownership import delete
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.reference_points import REFERENCE_POINTS
from headtohead.storage.run import METRICS, RESULT_FILES, RUN, STATUS

RECORDS = (RUN, EXPERIMENT, "stack.json")

PATTERNS = (
    *(*RECORDS, STATUS, METRICS, *RESULT_FILES, "attempts/*.json", f"attempts/*.{METRICS}"),
    *(REFERENCE_POINTS, "shipper*.log", ".loggers/*.json", ".loggers/*.lock", ".layout.lock"),
    *(".leases/*.json", ".leases/*.lock", f".*.{'?' * 32}{files.TEMPORARY}"),
    *(
        f".stacks/*/{name}"
        for name in ("stack.lock", "initial.safetensors", "resume-*.safetensors", "worker.log", "progress.json")
    ),
    *(".stacks/*/folder-token", ".stacks/*/slurm-job"),
)
"""Patterns of the ends of paths; docs/reference/run-directory.md describes the files."""


def run_files(folder: Path) -> list[Path]:
    """Return the files below a run directory, an experiment or a stack that headtohead wrote; the records are last.

    Symbolic links are not followed.
    """
    found = [
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if any(Path(parent, name).match(pattern) for pattern in PATTERNS)
    ]
    return sorted(found, key=lambda path: (path.name in RECORDS, path))


def delete_run_files(folder: Path) -> None:
    """Delete a run directory, an experiment or a stack with its empty folders; files of others stay.

    The records are deleted last, so that an interrupted deletion can be repeated.
    """
    delete(folder, run_files(folder))
    for parent, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty
            Path(parent).rmdir()
