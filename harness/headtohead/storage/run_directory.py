"""One run's directory: its reader, and its only writer, which needs the run's lease."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.leases import Lease, observe
from headtohead.storage.records import (
    HEADS,
    METRICS,
    RESULTS,
    RUN,
    STATUS,
    HeadMetrics,
    ResultsRecord,
    RunRecord,
    StatusRecord,
    read_record,
    read_status,
)


def now() -> str:
    """Return the time in UTC, to the millisecond, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder and the files in it."""

    path: Path

    @property
    def status(self) -> StatusRecord:
        """The content of status.json; a run without one is PLANNED."""
        return read_status(self.path)

    @property
    def state(self) -> str:
        """The run's state, as it was written last."""
        return self.status.state

    @property
    def observed_state(self) -> str:
        """The run's state, INTERRUPTED if no process holds its lease any more."""
        return observe(self.path)[1]

    @property
    def record(self) -> RunRecord:
        """The content of run.json.

        Raises:
            HeadToHeadError: If there is none, or a damaged one.
        """
        record = read_record(RunRecord, self.path / RUN)
        if record is None:
            raise HeadToHeadError(f"'{self.path}' holds no {RUN}; name the directory of a run")
        return record

    @property
    def results(self) -> ResultsRecord | None:
        """The content of results.json; None before the run is DONE."""
        return read_record(ResultsRecord, self.path / RESULTS)

    @property
    def head_metrics(self) -> Mapping[str, float | None]:
        """The metrics of heads.json; empty where heads have not been masked."""
        heads = read_record(HeadMetrics, self.path / HEADS)
        return heads.metrics if heads else {}


@dataclass(frozen=True)
class RunWriter(RunDirectory):
    """The writer of a run directory.

    Every write checks the lease first, and nobody can take the lease over before the write is
    complete. All methods raise LeaseLost if another process has taken it over.
    """

    lease: Lease

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the directory, for writes that have no method here."""
        with self.lease.held(self.path):
            yield self.path

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file of the directory."""
        with self.writing() as folder:
            files.write_json(folder / name, value)

    def plan(self, record: RunRecord) -> None:
        """Create the directory of a run that has not started, and its record."""
        with self.writing() as folder:
            (folder / "attempts").mkdir(parents=True, exist_ok=True)
            self.write_json(RUN, record.to_json())
            if not (folder / STATUS).exists():
                self.set_state(states.PLANNED)

    def set_state(self, state: str, **fields: Any) -> None:
        """Change the state, keeping the fields that are not named."""
        with self.writing():
            changes: dict[str, Any] = {"state": state, "host": socket.gethostname(), "pid": os.getpid()} | fields
            if state in states.FINAL | {states.KILLED}:
                changes["ended"] = now()
            self.write_json(STATUS, self.status.model_copy(update=changes).to_json())

    def begin_attempt(self) -> None:
        """Archive the previous attempt, if there was one, and start the next."""
        with self.writing() as folder:
            files.remove_temporary(folder)
            status = self.status
            if status.attempt and status.state in states.ACTIVE:
                # Its process died, or lost the lease, before it could write a final state.
                changes = {"state": states.KILLED, "reason": "the process died", "ended": now()}
                status = status.model_copy(update=changes)
            if status.attempt:
                self.write_json(f"attempts/{status.attempt}.json", status.to_json())
            self.set_state(
                states.LEASED,
                attempt=status.attempt + 1,
                ended=None,
                reason=None,
                signature=None,
                started=status.started or now(),
            )

    def log_metrics(self, step: int, epoch: float, time: float, values: Mapping[str, float]) -> None:
        """Append one line of metrics."""
        record = {"step": step, "epoch": round(epoch, 4), "time": time, "values": dict(values)}
        with self.writing() as folder:
            files.append_lines(folder / METRICS, [record])

    def finish(self, results: ResultsRecord) -> None:
        """Write the results, then the state DONE: in this order, so that DONE means complete."""
        with self.writing():
            self.write_json(RESULTS, results.to_json())
            self.set_state(states.DONE)


@contextmanager
def leased(run: Path) -> Iterator[RunWriter]:
    """Hold a run's lease for a few writes.

    Raises:
        Busy: If a live process holds it.
    """
    with Lease(run) as lease:
        yield RunWriter(run, lease)
