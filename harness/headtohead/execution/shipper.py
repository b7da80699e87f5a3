"""The shipper as a child process: MLflow learns of runs while others train, and slows none of them.

Only the process that is started here imports the tracking library.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headtohead.config.project import default_uri, readable
from headtohead.errors import HeadToHeadError
from headtohead.storage.paths import inside

QUIET_SECONDS = 2.0
"""How long it waits before it says so."""

STOPPING_SECONDS = 5.0

DONE = ".shipping-done"
LOG = "shipper.log"


@dataclass
class ShipperProcess:
    """A running shipper of one experiment's folder."""

    experiment: Path
    uri: str
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """Let the shipper end by itself after a last pass over everything; does not wait."""
        with suppress(OSError):
            inside(self.experiment, DONE).touch()

    def finish(self, sync: str, until: float, log: Callable[[str], object]) -> str | None:
        """Wait until everything is shipped, for a limited time; then end the shipper.

        Args:
            sync: The command that ships the rest.
            until: When to end it, in seconds of ``time.monotonic``.
            say: Receives a line if it takes longer than a moment.

        Returns:
            What to do if something is missing in the store, else None.
        """
        self.close()
        store = readable(self.uri)
        try:
            if not self._ended(min(QUIET_SECONDS, _left(until))):
                if _left(until) > 0:
                    log(
                        f"mlflow: shipping to {store} for at most {_left(until):.0f} s more; "
                        f"Ctrl-C leaves the rest to {sync}"
                    )
                self._ended(_left(until))
        except KeyboardInterrupt:
            pass
        if self.process.poll() == 0:
            return None
        reason = _last_line(self.experiment / LOG)
        if self.process.poll() is None:
            reason = "stopped before the end"
            self.stop()
        return f"mlflow: not everything was shipped to {store} ({reason}); nothing is lost, type {sync}"

    def stop(self) -> None:
        """End the process; what it has not shipped is shipped by ``h2h sync``."""
        self.process.terminate()
        if not self._ended(STOPPING_SECONDS):
            self.process.kill()
            self.process.wait()

    def _ended(self, seconds: float) -> bool:
        """Whether the process ends within some seconds."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def start_shipper(experiment: Path, runs_root: Path) -> ShipperProcess | None:
    """Start the shipper, or return None where MLflow is not installed."""
    if importlib.util.find_spec("mlflow") is None:
        return None
    uri = default_uri(runs_root)
    try:
        experiment.mkdir(parents=True, exist_ok=True)
        inside(experiment, DONE).unlink(missing_ok=True)
        log = inside(experiment, LOG).open("ab")
    except OSError:
        # The same folder is about to be written by the study itself, which says what is wrong.
        return None
    command = [
        sys.executable,
        "-m",
        "headtohead.tracking.shipper",
        str(experiment),
        "--uri",
        uri,
        "--parent",
        str(os.getpid()),
    ]
    with log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return ShipperProcess(experiment, uri, process)


def shipping_seconds() -> float:
    """Return how long a command ships after its answer: ``H2H_SHIPPING_SECONDS``, else 60.

    Raises:
        HeadToHeadError: If the variable is no number of seconds.
    """
    text = os.environ.get("H2H_SHIPPING_SECONDS", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < threading.TIMEOUT_MAX:
        raise HeadToHeadError(f"H2H_SHIPPING_SECONDS is '{text}'; expected a number of seconds")
    return seconds


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].strip() if lines else "no message"
