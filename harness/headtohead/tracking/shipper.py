"""The process that logs a study to MLflow or another logger while others train it.

It polls the run directories at low priority. No other process waits for it, so a slow or unreachable tracker does not
slow down training. Only this process imports mlflow and the packages of loggers. It ends when its standard input is
closed, by the parent or by the parent's end, after a final pass over all runs. Exit code 3: the tracker is incomplete,
and ``h2h sync`` logs the rest.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
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
from headtohead.escaping import VisibleFormatter
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.objects import load_plugins, worker_plugins
from headtohead.storage.paths import inside
from headtohead.tracking.shipping import LOCK_SECONDS, MLFLOW, Shipper
from headtohead.tracking.store import DeniedError
from headtohead.tracking.study import InUseError, locked, logger_file

QUIET_SECONDS = 2.0
"""Waiting time after which a message is logged."""

POLL_SECONDS = 1.0
STOPPING_SECONDS = 5.0
NICENESS = 10
INCOMPLETE = 3

log = logging.getLogger("headtohead.shipper")


@dataclass
class ShipperProcess:
    """A running shipper of an experiment's folder to a logger."""

    experiment: Path
    logger: str
    process: subprocess.Popen[bytes]

    @property
    def tracker(self) -> str:
        """The tracker's name in messages: the MLflow store without its password, or the logger."""
        return (
            readable(default_uri(self.experiment.parent)) if self.logger == MLFLOW else self.logger
        )

    def close(self) -> None:
        """Signal the shipper to end after a final pass, without waiting for it."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def finish(self, sync: str, until: float, log: Callable[[str], object]) -> str | None:
        """Wait until everything is logged or ``time.monotonic`` reaches the deadline, then end the shipper.

        Returns:
            A message with the command to use if runs are missing in the tracker, else None.
        """
        self.close()
        with suppress(KeyboardInterrupt):
            if not self._ended(min(QUIET_SECONDS, until - time.monotonic())):
                if (left := until - time.monotonic()) > 0:
                    more = f"logging to {self.tracker} for at most {left:.0f} s more"
                    log(f"{self.logger}: {more}; Ctrl-C leaves the rest to {sync}")
                self._ended(until - time.monotonic())
        if self.process.poll() == 0:
            return None
        last = files.last_line(log_file(self.experiment, self.logger))
        reason = last.rpartition(" WARNING ")[2].partition("; no run is lost")[0]
        if self.process.poll() is None:
            reason = reason if " WARNING " in last else "stopped early"
            self.process.terminate()
            if not self._ended(STOPPING_SECONDS):
                self.process.kill()
                self.process.wait()
        return f"{self.logger}: not everything was logged to {self.tracker} ({reason}); nothing is lost, run {sync}"

    def _ended(self, seconds: float) -> bool:
        """Return whether the process ends within ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=max(0.0, seconds))
        return self.process.poll() is not None


def log_file(experiment: Path, logger: str) -> Path:
    """Return the log of a shipper: in the experiment's folder, or in the cache if that folder is read-only."""
    name = f"shipper-{logger}.log"
    return (
        inside(experiment, name)
        if os.access(experiment, os.W_OK)
        else logger_file(experiment, name)
    )


def start_shipper(experiment: Path, logger: str, reports: Path) -> ShipperProcess | None:
    """Start a shipper of an experiment's folder; return None if the folder cannot be written."""
    try:
        experiment.mkdir(parents=True, exist_ok=True)
        file = log_file(experiment, logger).open("ab")
    except OSError:
        # The scheduler writes the same folder next and reports the error.
        return None
    command = [
        sys.executable,
        "-m",
        "headtohead.tracking.shipper",
        str(experiment),
        logger,
        str(reports),
    ]
    with file:
        process = children.start_program(
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True
        )
    assert process.stdin is not None
    with suppress(OSError):  # a process that has ended is reported by `finish`
        pickle.dump(None if logger == MLFLOW else worker_plugins(), process.stdin)
        process.stdin.flush()
    return ShipperProcess(experiment, logger, process)


def shipping_seconds() -> float:
    """Return the time limit for trackers after the answer is printed: ``H2H_TRACKING_SECONDS``, else 60."""
    text = os.environ.get("H2H_TRACKING_SECONDS", "60")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", text):
        raise HeadToHeadError(f"H2H_TRACKING_SECONDS is '{text}'; expected a number of seconds")
    return float(text)


def follow(shipper: Shipper, ended: threading.Event) -> bool:
    """Log runs until the event is set, then all missing runs; return whether the tracker is complete.

    If another process logs this study, wait until it ends.
    """
    while not ended.is_set():
        with suppress(InUseError), locked(shipper.folder, shipper.name):
            while not ended.wait(POLL_SECONDS):
                if (shipper.folder / EXPERIMENT).is_file():
                    shipper.poll()
            return _finish(shipper)
        ended.wait(POLL_SECONDS)
    with locked(shipper.folder, shipper.name, LOCK_SECONDS):
        return _finish(shipper)


def _finish(shipper: Shipper) -> bool:
    """Make the last pass, after an error of the tracker again for as long as the parent waits.

    A read-only disk does not become writable meanwhile.
    """
    until, pause = time.monotonic() + shipping_seconds(), POLL_SECONDS
    while True:
        try:
            return shipper.finish()
        except HeadToHeadError as error:
            is_read_only = (
                isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EROFS
            )
            if isinstance(error, DeniedError) or is_read_only or time.monotonic() + pause > until:
                raise
            log.warning("%s; next attempt in %.0f s", error, pause)
        time.sleep(pause)
        pause *= 2


def main(folder_name: str, logger: str, reports_name: str) -> int:
    """Run the shipper of an experiment's folder; its log is `log_file`."""
    folder, reports = Path(folder_name), Path(reports_name)
    handler = logging.FileHandler(log_file(folder, logger), encoding="utf-8")
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    os.nice(NICENESS)
    ended = threading.Event()

    def set_at_end() -> None:
        sys.stdin.buffer.read()
        ended.set()

    try:
        plugins = pickle.load(sys.stdin.buffer)  # from the parent, through a pipe
        if plugins is not None:
            load_plugins(plugins)
        threading.Thread(target=set_at_end, daemon=True).start()
        log.info("logging %s to %s", folder, logger)
        complete = follow(Shipper(folder, logger, reports=reports), ended)
    except HeadToHeadError as error:
        log.warning(error)
        return INCOMPLETE
    except Exception:  # the log file is the only output of this process
        log.exception("the shipper failed; no run is lost, run h2h sync")
        return INCOMPLETE
    return 0 if complete else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
