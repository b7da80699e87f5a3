"""An experiment and its runs for tracking: with metrics by step and a hash of the content to log."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory, VariantRecord
from headtohead.storage.leases import observe
from headtohead.storage.run import METRICS, RUN, STATUS, StatusRecord
from headtohead.storage.run_directory import RunDirectory

# Increase this if the same run directory is logged differently; all runs are then logged anew.
SHIPPING_FORMAT = 3
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
            TrackedRun(self.run_path(run), run.run_hash, run.seed, variants[run.variant], run.reused_from)
            for run in self.record.runs
        ]


@dataclass(frozen=True)
class TrackedRun(RunDirectory):
    """A run directory, and the fields of the plan that tracking needs."""

    run_hash: str
    seed: int
    variant: VariantRecord
    reused_from: str | None

    def begun(self) -> bool:
        """Return whether the run has a record and a status, so that it can be logged."""
        return (self.path / RUN).is_file() and (self.path / STATUS).is_file()

    def modified(self) -> tuple[int, ...]:
        """Return the modification times of record, status and metrics in nanoseconds; 0 for a missing file."""
        paths = [self.path / name for name in CONTENT]
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)

    def observed(self, *, sweep: bool) -> tuple[StatusRecord, str, str | None]:
        """Return the status, the state and the reason.

        With ``sweep``, an active run without a live process is KILLED. Without it, the run keeps its state, since its
        parent will resume it. A finished run without one of its files is KILLED.
        """
        status, state = observe(self.path)
        if state != states.INTERRUPTED:
            return status, state, status.reason
        if sweep or status.state == states.INTERRUPTED:
            return status, states.KILLED, status.reason or f"process {status.pid} on {status.host} is gone"
        return status, status.state, status.reason

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

        Raises:
            HeadToHeadError: If the history of a finished run has changed.
        """
        found: dict[int, Step] = {}
        for line in self.history():
            values = line.values if line else {}
            metrics = {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}
            if line and metrics:
                found.setdefault(line.step, Step(line.step, line.time, {})).metrics.update(metrics)
        return [found[step] for step in sorted(found)]


def milliseconds(moment: str | None) -> int | None:
    """Return an ISO time in milliseconds since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)
