"""A study and its runs as tracking reads them: with histories, and a hash of the content to ship."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.histories import read_metrics
from headtohead.storage.leases import observe
from headtohead.storage.records import HEADS, METRICS, RESULTS, RUN, STATUS, StatusRecord, VariantRecord
from headtohead.storage.run_directory import RunDirectory

# Raised whenever the same run directory would be shipped differently: everything is shipped anew.
SHIPPING_FORMAT = 1
UNREADABLE = "UNREADABLE"
CONTENT = (RUN, STATUS, RESULTS, METRICS, "translations.tsv", "attention/probes.json", "vocabulary.json")
BULK = ("attention/maps.safetensors", "checkpoint.safetensors")


class MetricPoint(NamedTuple):
    """A value of a metric's history; ``time`` in milliseconds since 1970."""

    step: int
    time: int
    value: float


@dataclass(frozen=True)
class TrackedStudy(ExperimentDirectory):
    """An experiment's folder, with its runs for tracking."""

    def runs(self) -> list[TrackedRun]:
        """Return the planned runs in the order of the plan, whether they have begun or not."""
        variants = self.record.by_slug
        return [
            TrackedRun(self.run_path(run), run.key, run.seed, variants[run.variant], run.reused_from)
            for run in self.record.runs
        ]


@dataclass(frozen=True)
class TrackedRun(RunDirectory):
    """A run directory, and the fields of the plan that tracking needs."""

    key: str
    seed: int
    variant: VariantRecord
    reused_from: str | None

    def begun(self) -> bool:
        """Return whether there is something to ship."""
        return (self.path / RUN).is_file() and (self.path / STATUS).is_file()

    def modified(self) -> tuple[int, ...]:
        """Return when status, metrics and record were last written, in nanoseconds; 0 for a missing file."""
        return tuple(_modified(self.path / name) for name in (STATUS, METRICS, RUN))

    def state_or_unreadable(self) -> str:
        """Return the written state, or UNREADABLE: in an overview a damaged run must not hide the others."""
        try:
            return self.state
        except HeadToHeadError:
            return UNREADABLE

    def observed(self, *, sweep: bool) -> tuple[StatusRecord, str, str | None]:
        """Return the status, the state and the reason.

        With ``sweep``, a run whose process is gone is KILLED. Without it, the run keeps its state:
        its parent is about to resume it.
        """
        status, state = observe(self.path)
        if state != states.INTERRUPTED:
            return status, state, status.reason
        if sweep:
            return status, states.KILLED, f"process {status.pid} on {status.host} is gone"
        return status, status.state, status.reason

    def content_hash(self) -> str:
        """Return a hash of the content to ship; large arrays count by their size."""
        content = hashlib.sha256(f"{SHIPPING_FORMAT} {self.variant.axes}".encode())
        for name in CONTENT:
            path = self.path / name
            content.update(f"\0{name}\0".encode())
            if path.is_file():
                content.update(path.read_bytes())
        if (self.path / HEADS).is_file():
            content.update(f"\0{HEADS}\0".encode() + (self.path / HEADS).read_bytes())
        for name in BULK:
            path = self.path / name
            content.update(f"\0{name}\0{path.stat().st_size if path.is_file() else -1}".encode())
        return content.hexdigest()[:32]

    def histories(self) -> dict[str, list[MetricPoint]]:
        """Return every metric's history by step.

        A resumed run repeats steps: the last value of a step wins, with the time of the first, so
        that a history shipped before the interruption and one shipped after it are the same.
        """
        histories: dict[str, dict[int, MetricPoint]] = {}
        for line in read_metrics(self.path / METRICS):
            if line is None:
                continue
            for name, value in line.values.items():
                if value is not None:
                    points = histories.setdefault(name, {})
                    first = points.get(line.step)
                    time = first.time if first else round(line.time * 1000)
                    points[line.step] = MetricPoint(line.step, time, float(value))
        return {name: [points[step] for step in sorted(points)] for name, points in histories.items()}


def read_study(folder: Path) -> TrackedStudy:
    """Read an experiment's plan.

    Raises:
        HeadToHeadError: If the folder holds no plan, a damaged one, or one whose name cannot name a folder.
    """
    return TrackedStudy.read(folder)


def milliseconds(moment: str | None) -> int | None:
    """Return an ISO time in milliseconds since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
