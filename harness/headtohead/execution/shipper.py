"""Shippers as child processes, which log runs to MLflow and to loggers while others train.

Only the child processes import mlflow and the packages of loggers.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headtohead import children, files
from headtohead.config.project import default_uri, readable
from headtohead.errors import HeadToHeadError
from headtohead.storage.objects import worker_plugins
from headtohead.storage.paths import inside

QUIET_SECONDS = 2.0
"""Waiting time after which a message is logged."""

STOPPING_SECONDS = 5.0

DONE = ".shipping-done"


def log_file(logger: str | None) -> str:
    """Return the name of the log of a shipper to a logger, or None for MLflow, in the experiment's folder."""
    return f"shipper-{logger}.log" if logger else "shipper.log"


@dataclass
class ShipperProcess:
    """A running shipper of an experiment's folder, to the MLflow store ``uri`` or to ``logger``."""

    experiment: Path
    uri: str
    process: subprocess.Popen[bytes]
    logger: str | None = None

    def close(self) -> None:
        """Signal the shipper to end after a final pass, without waiting for it."""
        with suppress(OSError):
            inside(self.experiment, DONE).touch()

    def finish(self, sync: str, until: float, log: Callable[[str], object]) -> str | None:
        """Wait until everything is shipped or the time is over, then end the shipper.

        Args:
            sync: The command that ships the rest.
            until: Deadline in seconds of ``time.monotonic``.
            log: Receives a line if shipping takes longer than `QUIET_SECONDS`.

        Returns:
            A message with the command to use if runs are missing in the store, else None.
        """
        self.close()
        name, store = self.logger or "mlflow", self.logger or readable(self.uri)
        try:
            if not self._ended(min(QUIET_SECONDS, _left(until))):
                if _left(until) > 0:
                    log(
                        f"{name}: shipping to {store} for at most {_left(until):.0f} s more; "
                        f"Ctrl-C leaves the rest to {sync}"
                    )
                self._ended(_left(until))
        except KeyboardInterrupt:
            pass
        if self.process.poll() == 0:
            return None
        reason = (
            files.last_line(self.experiment / log_file(self.logger))
            .rpartition(" WARNING ")[2]
            .partition("; no run is lost")[0]
        )
        if self.process.poll() is None:
            reason = "stopped early"
            self.stop()
        return f"{name}: not everything was shipped to {store} ({reason}); nothing is lost, run {sync}"

    def stop(self) -> None:
        """End the process; ``h2h sync`` ships the rest."""
        self.process.terminate()
        if not self._ended(STOPPING_SECONDS):
            self.process.kill()
            self.process.wait()

    def _ended(self, seconds: float) -> bool:
        """Return whether the process ends within ``seconds``."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def start_shipper(experiment: Path, reports: Path) -> ShipperProcess | None:
    """Start the shipper to MLflow; return None if MLflow is not installed or the folder cannot be written.

    Args:
        experiment: The experiment's folder.
        reports: The folder of all reports.
    """
    if importlib.util.find_spec("mlflow") is None:
        return None
    uri = default_uri(experiment.parent)
    process = _start(experiment, log_file(None), "--uri", uri, "--reports", str(reports))
    return ShipperProcess(experiment, uri, process) if process else None


def start_logger(experiment: Path, name: str) -> ShipperProcess | None:
    """Start the shipper to a registered logger; return None if the folder cannot be written."""
    process = _start(experiment, log_file(name), "--logger", name, plugins=pickle.dumps(worker_plugins()))
    return ShipperProcess(experiment, "", process, name) if process else None


def _start(experiment: Path, log_name: str, *options: str, plugins: bytes = b"") -> subprocess.Popen[bytes] | None:
    """Start a shipper that reads ``plugins`` from its standard input."""
    try:
        experiment.mkdir(parents=True, exist_ok=True)
        inside(experiment, DONE).unlink(missing_ok=True)
        log = inside(experiment, log_name).open("ab")
    except OSError:
        # The scheduler writes the same folder next and reports the error.
        return None
    module = "headtohead.tracking.shipper"
    command = [sys.executable, "-m", module, str(experiment), *options, "--parent", str(os.getpid())]
    source = subprocess.PIPE if plugins else subprocess.DEVNULL
    with log:
        process = children.start_program(command, stdin=source, stdout=log, stderr=log, start_new_session=True)
    if process.stdin is not None:
        with suppress(OSError), process.stdin as pipe:  # a process that has ended is reported by `finish`
            pipe.write(plugins)
    return process


def shipping_seconds() -> float:
    """Return the time limit for shipping after the answer is printed: ``H2H_SHIPPING_SECONDS``, else 60.

    Raises:
        HeadToHeadError: If the variable is not a valid number of seconds.
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
