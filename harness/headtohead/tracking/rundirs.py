"""An experiment and its runs for tracking: with metric histories and a hash of the content to log."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory, VariantRecord
from headtohead.storage.leases import observe
from headtohead.storage.run import METRICS, RUN, STATUS, StatusRecord
from headtohead.storage.run_directory import RunDirectory

# Increase this if the same run directory is logged differently; all runs are then logged anew.
SHIPPING_FORMAT = 1
UNREADABLE = "UNREADABLE"
CONTENT = (RUN, STATUS, METRICS)
"""Files that determine the content to log: ``status.json`` has the sha256 of the others."""


class MetricPoint(NamedTuple):
    """A value of a metric's history; ``time`` in milliseconds since 1970."""

    step: int
    time: int
    value: float


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
        """Return the modification times of status, metrics and record in nanoseconds; 0 for a missing file."""
        return tuple(_modified(self.path / name) for name in (STATUS, METRICS, RUN))

    def state_or_unreadable(self) -> str:
        """Return the state, or UNREADABLE if the status is damaged."""
        try:
            return self.state
        except HeadToHeadError:
            return UNREADABLE

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

    def histories(self) -> dict[str, list[MetricPoint]]:
        """Return the history of every metric, ordered by step.

        A resumed run repeats steps. A repeated step has its last value and its first time, so that histories logged
        before and after an interruption are equal.

        Raises:
            HeadToHeadError: If the history of a finished run has changed.
        """
        histories: dict[str, dict[int, MetricPoint]] = {}
        for line in self.history():
            if line is None:
                continue
            for name, value in line.values.items():
                if value is not None:
                    points = histories.setdefault(name, {})
                    first = points.get(line.step)
                    time = first.time if first else round(line.time * 1000)
                    points[line.step] = MetricPoint(line.step, time, float(value))
        return {name: [points[step] for step in sorted(points)] for name, points in histories.items()}


def milliseconds(moment: str | None) -> int | None:
    """Return an ISO time in milliseconds since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
