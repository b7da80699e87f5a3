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
from headtohead.storage import states
from headtohead.storage.leases import Lease, observe


def now() -> str:
    """Return the time in UTC, to the millisecond, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder and the files in it."""

    path: Path

    @property
    def status(self) -> dict[str, Any]:
        """The content of status.json; a run without one is PLANNED."""
        try:
            status: dict[str, Any] = files.read_json(self.path / "status.json")
        except FileNotFoundError:
            return {"state": states.PLANNED, "attempt": 0}
        return status

    @property
    def state(self) -> str:
        """The run's state, as it was written last."""
        return str(self.status["state"])

    @property
    def observed_state(self) -> str:
        """The run's state, INTERRUPTED if the process is gone that trained it."""
        return observe(self.path, lambda: self.status)[1]

    @property
    def record(self) -> dict[str, Any]:
        """The content of run.json."""
        record: dict[str, Any] = files.read_json(self.path / "run.json")
        return record


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

    def plan(self, record: Mapping[str, Any]) -> None:
        """Create the directory of a run that has not started, and its record."""
        with self.writing() as folder:
            (folder / "attempts").mkdir(parents=True, exist_ok=True)
            self.write_json("run.json", dict(record))
            if not (folder / "status.json").exists():
                self.set_state(states.PLANNED)

    def set_state(self, state: str, **fields: Any) -> None:
        """Change the state, keeping the fields that are not named."""
        with self.writing():
            status = {
                "reason": None,
                "signature": None,
                "step": 0,
                "steps": None,
                "started": None,
                "ended": None,
                "attempt": 0,
            } | self.status
            status |= {"state": state, "host": socket.gethostname(), "pid": os.getpid()} | fields
            if state in states.FINAL | {states.KILLED}:
                status["ended"] = now()
            self.write_json("status.json", status)

    def begin_attempt(self) -> None:
        """Archive the attempt before, if there was one, and start the next."""
        with self.writing() as folder:
            files.remove_temporary(folder)
            status = self.status
            attempt = int(status["attempt"])
            if attempt and status["state"] in states.ACTIVE:
                # Its process died, or lost the lease, before it could write a final state.
                status |= {"state": states.KILLED, "reason": "the process died", "ended": now()}
            if attempt:
                self.write_json(f"attempts/{attempt}.json", status)
            self.set_state(
                states.LEASED,
                attempt=attempt + 1,
                ended=None,
                reason=None,
                signature=None,
                started=status.get("started") or now(),
            )

    def log_metrics(self, step: int, epoch: float, time: float, values: Mapping[str, float]) -> None:
        """Append one line of metrics."""
        record = {"step": step, "epoch": round(epoch, 4), "time": time, "values": dict(values)}
        with self.writing() as folder:
            files.append_lines(folder / "metrics.jsonl", [record])

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the results, then the state DONE: in this order, so that DONE means complete."""
        with self.writing():
            self.write_json("results.json", dict(results))
            self.set_state(states.DONE)


@contextmanager
def leased(run: Path) -> Iterator[RunWriter]:
    """Hold a run's lease for a few writes.

    Raises:
        Busy: If a live process holds it.
    """
    with Lease(run) as lease:
        yield RunWriter(run, lease)
