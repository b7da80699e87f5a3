"""One run's directory: the truth about it. Only the worker that holds its stack writes here."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headtohead.runs import files, states


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
        """The run's state."""
        return str(self.status["state"])

    @property
    def record(self) -> dict[str, Any]:
        """The content of run.json."""
        record: dict[str, Any] = files.read_json(self.path / "run.json")
        return record

    def plan(self, record: Mapping[str, Any]) -> None:
        """Create the directory of a run that has not started, and its record."""
        (self.path / "attempts").mkdir(parents=True, exist_ok=True)
        files.write_json(self.path / "run.json", dict(record))
        if not (self.path / "status.json").exists():
            self.set_state(states.PLANNED)

    def set_state(self, state: str, **fields: Any) -> None:
        """Change the state, keeping the fields that are not named."""
        status = {
            "reason": None, "signature": None, "step": 0, "steps": None, "started": None,
            "ended": None, "attempt": 0,
        } | self.status  # fmt: skip
        status |= {"state": state, "host": socket.gethostname(), "pid": os.getpid()} | fields
        if state in states.FINAL | {states.KILLED}:
            status["ended"] = now()
        files.write_json(self.path / "status.json", status)

    def begin_attempt(self) -> None:
        """Archive the attempt before, if there was one, and start the next."""
        status = self.status
        attempt = int(status["attempt"])
        if attempt and status["state"] in {states.CLAIMED, states.RUNNING}:
            # Its process is gone without a word, or this attempt could not have the claim.
            status |= {"state": states.KILLED, "reason": "the process died", "ended": now()}
        if attempt:
            files.write_json(self.path / "attempts" / f"{attempt}.json", status)
        self.set_state(
            states.CLAIMED, attempt=attempt + 1, ended=None, reason=None, signature=None,
            started=status.get("started") or now(),
        )  # fmt: skip

    def log_metrics(
        self, step: int, epoch: float, time: float, values: Mapping[str, float]
    ) -> None:
        """Append one line of metrics."""
        record = {"step": step, "epoch": round(epoch, 4), "time": time, "values": dict(values)}
        files.append_lines(self.path / "metrics.jsonl", [record])

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write the results, then say DONE: in this order, so that DONE means complete."""
        files.write_json(self.path / "results.json", dict(results))
        self.set_state(states.DONE)
