"""The folder of an experiment: its record and its run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headtohead.errors import HeadToHeadError
from headtohead.files import LARGE_BYTES
from headtohead.storage.paths import checked_name, inside, run_folder
from headtohead.storage.records import EXPERIMENT, ExperimentRecord, PlannedRunRecord, read_record


@dataclass(frozen=True)
class ExperimentDirectory:
    """An experiment's folder and the content of its ``experiment.json``."""

    path: Path
    record: ExperimentRecord

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the record of an experiment's folder.

        Raises:
            HeadToHeadError: If the record is missing or damaged, or its name is not a valid folder name.
        """
        record = read_record(ExperimentRecord, inside(path, EXPERIMENT), max_bytes=LARGE_BYTES)
        if record is None:
            raise HeadToHeadError(
                f"'{path}' has no {EXPERIMENT}; start with h2h run FILE, or pass its runs folder with --runs"
            )
        checked_name(record.name, path / EXPERIMENT)
        return cls(path, record)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.record.name

    def run_path(self, run: PlannedRunRecord, *, tree: bool = False) -> Path:
        """Return the directory of a run, which for a reused result is in another experiment.

        Args:
            run: A run of the record.
            tree: Also refuse symbolic links inside the directory.

        Raises:
            HeadToHeadError: If the path is outside the folder or contains a symbolic link.
        """
        return run_folder(self.path, run.directory, run.reused_from, tree=tree)
