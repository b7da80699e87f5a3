"""A study at a tracker: the runs that the tracker has as a whole, and the logger of each run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from headtohead import files
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import LoggedRun, Logger
from headtohead.plugins.registry import current
from headtohead.storage.paths import inside
from headtohead.storage.record import read_record
from headtohead.tracking.runs import TrackedRun, TrackedStudy

FOLDER = ".loggers"


@dataclass
class StudyLogger:
    """Logs a study to a registered logger.

    ``received`` has the content hash of each run that the tracker has as a whole, in ``.loggers/<name>.json``. A run
    without an entry begins again, so that a killed process repeats no step: see `Logger`.
    """

    name: str
    study: TrackedStudy
    reports: Path
    received: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.received = read_record(dict[str, str], self._file()) or {}
        except HeadToHeadError:  # a damaged file counts as missing, so all runs begin again
            self.received = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold what a pass over the runs needs, such as a connection; its errors end the pass."""
        yield

    def logger(self, run: TrackedRun) -> Logger:
        """Return a new logger of a run."""
        return current().logger(self.name)(self.logged_run(run))

    def logged_run(self, run: TrackedRun) -> LoggedRun:
        """Return a run as loggers get it."""
        return LoggedRun(
            experiment=self.study.name,
            name=run.path.name,
            run_hash=run.run_hash,
            variant=run.variant.title,
            seed=run.seed,
            axes=run.variant.axes,
            config=run.record.config.model_dump(mode="json"),
            root=self.study.path.resolve().parent.parent,
            directory=run.path,
        )

    def keep(self, run: TrackedRun, content_hash: str) -> None:
        """Remember that the tracker has a run as a whole."""
        self.received[run.run_hash] = content_hash
        self._file().parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self._file(), self.received)

    def failure(self, error: Exception) -> str | None:
        """Return the reason if an error concerns a single run, None if it concerns the tracker as a whole."""
        return str(error) if isinstance(error, HeadToHeadError) else current().describe(error)

    def finish(self) -> list[str]:
        """Log what belongs to the study as a whole, after its runs; return notes for the user."""
        return []

    @property
    def link(self) -> str | None:
        """The address of the study's page."""
        return None

    def _file(self) -> Path:
        return _file(self.study.path, f"{self.name}.json")


class InUseError(HeadToHeadError):
    """Another process logs this study to this tracker."""


@contextmanager
def locked(folder: Path, name: str, seconds: float = 0.0) -> Iterator[None]:
    """Hold the right to log a study to a tracker, for which this process waits some seconds.

    Raises:
        InUseError: If another process holds it.
    """
    path = _file(folder, f"{name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=seconds):
            yield
    except Timeout:
        raise InUseError(f"another process logs '{folder.name}' to {name}; wait until it ends") from None


def _file(study: Path, name: str) -> Path:
    """Return a file of a logger in the folder of a study, or in the cache if that folder is read-only."""
    if os.access(study, os.W_OK):
        return inside(study, FOLDER, name)
    return cache_root() / "loggers" / hashlib.sha256(str(study.resolve()).encode()).hexdigest()[:16] / name
