"""A study for tracking: its runs with metrics by step and a hash of their content, and what a tracker has of it."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from headtohead import files
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory, VariantRecord
from headtohead.storage.leases import observe
from headtohead.storage.paths import checked_path
from headtohead.storage.record import read_record
from headtohead.storage.run import METRICS, RUN, STATUS, StatusRecord
from headtohead.storage.run_directory import RunDirectory

FOLDER = ".loggers"
# Increase this if the same run directory is logged differently; all runs are then logged anew.
SHIPPING_FORMAT = 7
CONTENT = (RUN, STATUS, METRICS)
"""Files that determine the content to log: ``status.json`` has the sha256 of the others."""


class Step(NamedTuple):
    """The metrics of a step; ``seconds`` since 1970."""

    step: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class TrackedStudy(ExperimentDirectory):
    """An experiment's folder, with its runs for tracking."""

    def runs(self) -> list[TrackedRun]:
        """Return all planned runs in the order of the plan."""
        variants = self.record.by_slug
        return [
            TrackedRun(
                run.path(self.path),
                self,
                run.run_hash,
                run.seed,
                variants[run.variant],
                run.reused_from,
            )
            for run in self.record.runs
        ]


@dataclass(frozen=True)
class TrackedRun(RunDirectory):
    """A run directory, and the fields of the plan that tracking needs; loggers get it as a `LoggedRun`."""

    study: TrackedStudy = field(repr=False)
    run_hash: str
    seed: int
    variant: VariantRecord
    reused_from: str | None

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.study.name

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.path.name

    @property
    def title(self) -> str:
        """Title of the variant."""
        return self.variant.title

    @property
    def axes(self) -> Mapping[str, Any]:
        """Values of the experiment's axes."""
        return self.variant.axes

    @property
    def config(self) -> Mapping[str, Any]:
        """The complete configuration as JSON data."""
        return self.record.config.model_dump(mode="json")

    @property
    def root(self) -> Path:
        """Folder of the ``runs`` folder of the experiment."""
        return self.study.path.resolve().parent.parent

    @cached_property
    def training(self) -> str:
        """Hash of this training; a run that starts again from step 0 has another one."""
        earlier = sorted(path.name for path in self.path.glob(f"attempts/*.{METRICS}"))
        return hashlib.sha256(f"{self.record.created} {earlier}".encode()).hexdigest()[:8]

    def begun(self) -> bool:
        """Return whether the run has a record and a status, so that it can be logged."""
        return (self.path / RUN).is_file() and (self.path / STATUS).is_file()

    def modified(self) -> tuple[int, ...]:
        """Return the modification times of record, status and metrics in nanoseconds; 0 for a missing file."""
        return tuple(
            path.stat().st_mtime_ns if path.exists() else 0
            for path in map(self.path.joinpath, CONTENT)
        )

    def observed(self, *, sweep: bool) -> StatusRecord:
        """Return the status, which is KILLED for a finished run without one of its files.

        With ``sweep``, an active run without a live process is KILLED too. Without it, the run keeps its state, since
        its parent will resume it.
        """
        status = observe(self.path)
        if status.state == states.INTERRUPTED and not sweep:
            status = self.status
        if status.state != states.INTERRUPTED:
            return status
        reason = status.reason or f"process {status.pid} on {status.host} is gone"
        return status.model_copy(update={"state": states.KILLED, "reason": reason})

    def content_hash(self) -> str:
        """Return a hash of the content to log."""
        content = hashlib.sha256(f"{SHIPPING_FORMAT} {self.variant.axes}".encode())
        for name in CONTENT:
            path = self.path / name
            content.update(f"\0{name}\0".encode())
            if path.is_file():
                content.update(path.read_bytes())
        return content.hexdigest()[:32]

    def steps(self) -> list[Step]:
        """Return the finite metrics of each step.

        A resumed run repeats steps. A repeated step has its last values and its first time, so that histories logged
        before and after an interruption are equal.
        """
        steps: dict[int, Step] = {}
        for line in filter(None, self.history()):
            metrics = {
                name: float(v)
                for name, v in line.values.items()
                if v is not None and math.isfinite(v)
            }
            if metrics:
                steps.setdefault(line.step, Step(line.step, line.time, {})).metrics.update(metrics)
        return [steps[step] for step in sorted(steps)]


def milliseconds(moment: str | None) -> int | None:
    """Return an ISO time in milliseconds since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


class ReceivedRuns:
    """The content hash of each run that a tracker has as a whole, by run hash.

    A run without an entry begins again, so that a killed process repeats no step: see `Logger`.

    Args:
        file: The file of the list. A damaged file counts as missing, so that all runs begin again.
        hashes: The list of a tracker that stores content hashes itself; then no file is written.
    """

    def __init__(self, file: Path, hashes: dict[str, str] | None) -> None:
        self.file = file if hashes is None else None
        self.hashes = {} if hashes is None else hashes
        if self.file is not None:
            with suppress(HeadToHeadError):
                self.hashes = read_record(dict[str, str], self.file) or {}

    def has(self, run_hash: str, content_hash: str) -> bool:
        """Return whether the tracker has this content of a run."""
        return self.hashes.get(run_hash) == content_hash

    def forget(self, run_hash: str) -> None:
        """Treat a run as incomplete from now on."""
        self.hashes.pop(run_hash, None)

    def add(self, run_hash: str, content_hash: str) -> None:
        """Record that the tracker has the whole run."""
        self.hashes[run_hash] = content_hash
        if self.file is not None:
            files.write_json(self.file, self.hashes)


class InUseError(HeadToHeadError):
    """Another process logs this study to this tracker."""


@contextmanager
def locked(
    study: Path, name: str, seconds: float = 0.0, log: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Hold the right to log a study to a tracker.

    Args:
        study: The experiment's folder.
        name: Name of the logger.
        seconds: How long to wait for another process.
        log: Receives a line if there is another process to wait for.

    Raises:
        InUseError: If another process has the right for longer.
    """
    file = logger_file(study, f"{name}.lock")
    use = f"another process logs '{study.name}' to {name}"
    error = InUseError(f"{use}; wait until it ends")
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked(file, 0.0, error))
        except InUseError:
            if log is not None:
                log(f"{use}; waiting for it for at most {seconds:.0f} s")
            stack.enter_context(files.locked(file, seconds, error))
        yield


def logger_file(study: Path, name: str) -> Path:
    """Return a file of a logger in the folder of a study, or in the cache if that folder is read-only."""
    if os.access(study, os.W_OK):
        path = checked_path(study, FOLDER, name)
    else:
        path = (
            cache_root()
            / "loggers"
            / hashlib.sha256(str(study.resolve()).encode()).hexdigest()[:16]
            / name
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
