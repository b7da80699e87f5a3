"""Reading and writing of a run directory. Only `RunWriter`, which requires the run's lease, writes it."""

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
    """Return the current UTC time in ISO 8601 format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunDirectory:
    """Reader of a run directory."""

    path: Path

    @property
    def status(self) -> StatusRecord:
        """The content of status.json; a run without this file is PLANNED."""
        return read_status(self.path)

    @property
    def state(self) -> str:
        """The run's state in status.json."""
        return self.status.state

    @property
    def observed_state(self) -> str:
        """The run's state; INTERRUPTED if the run is active and no process holds its lease."""
        return observe(self.path)[1]

    @property
    def record(self) -> RunRecord:
        """The content of run.json.

        Raises:
            HeadToHeadError: If the file is missing or damaged.
        """
        record = read_record(RunRecord, self.path / RUN)
        if record is None:
            raise HeadToHeadError(f"'{self.path}' has no {RUN}; pass the directory of a run")
        return record

    @property
    def results(self) -> ResultsRecord | None:
        """The content of results.json; None before the run is DONE."""
        return read_record(ResultsRecord, self.path / RESULTS)

    @property
    def head_metrics(self) -> Mapping[str, float | None]:
        """The metrics of heads.json; empty if there is no such file."""
        heads = read_record(HeadMetrics, self.path / HEADS)
        return heads.metrics if heads else {}


@dataclass(frozen=True)
class RunWriter(RunDirectory):
    """Writer of a run directory.

    Every write checks the lease and prevents a takeover until it is complete. All methods raise LeaseLost if another
    process has taken over the lease.
    """

    lease: Lease

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the directory for other writes, under the lease."""
        with self.lease.held(self.path):
            yield self.path

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file of the directory."""
        with self.writing() as folder:
            files.write_json(folder / name, value)

    def plan(self, record: RunRecord) -> None:
        """Create the directory and the record of a PLANNED run."""
        with self.writing() as folder:
            (folder / "attempts").mkdir(parents=True, exist_ok=True)
            self.write_json(RUN, record.to_json())
            if not (folder / STATUS).exists():
                self.set_state(states.PLANNED)

    def set_state(self, state: str, **fields: Any) -> None:
        """Change the state and the given fields of status.json; other fields keep their values."""
        with self.writing():
            changes: dict[str, Any] = {"state": state, "host": socket.gethostname(), "pid": os.getpid()} | fields
            if state in states.FINAL | {states.KILLED}:
                changes["ended"] = now()
            self.write_json(STATUS, self.status.model_copy(update=changes).to_json())

    def begin_attempt(self) -> None:
        """Save the status of the previous attempt, if any, in ``attempts/`` and start the next attempt."""
        with self.writing() as folder:
            files.remove_leftovers(folder)
            status = self.status
            if status.attempt and status.state in states.ACTIVE:
                # The process of that attempt died or lost the lease before it wrote a final state.
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
        """Append a line to metrics.jsonl; ``time`` in seconds since 1970."""
        record = {"step": step, "epoch": round(epoch, 4), "time": time, "values": dict(values)}
        with self.writing() as folder:
            files.append_lines(folder / METRICS, [record])

    def finish(self, results: ResultsRecord) -> None:
        """Write the results, then the state DONE, so that a DONE run always has its results."""
        with self.writing():
            self.write_json(RESULTS, results.to_json())
            self.set_state(states.DONE)


@contextmanager
def leased(run: Path) -> Iterator[RunWriter]:
    """Hold a run's lease for the writes of a block.

    Raises:
        Busy: If a live process holds it.
    """
    with Lease(run) as lease:
        yield RunWriter(run, lease)
