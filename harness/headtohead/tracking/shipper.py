"""The process that logs a study to a logger while others train it.

It polls the run directories at low priority. No other process waits for it, so a slow or unreachable tracker does not
slow down training. Only this process imports the packages of loggers. Its standard input has the plugins of the parent
and, before it is closed, the answer of the study. It ends when its standard input is closed, by the parent or by the
parent's end, after a final pass over all runs. Exit code 3: the tracker is incomplete, and ``h2h sync`` logs the rest.
"""

from __future__ import annotations

import errno
import logging
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
from headtohead.config.project import next_command
from headtohead.errors import HeadToHeadError, go_on_after
from headtohead.escaping import VisibleFormatter
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.plugins.logger import Answer, DeniedError
from headtohead.plugins.registry import find_entry
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.objects import load_plugins, worker_plugins
from headtohead.storage.paths import checked_path
from headtohead.tracking.shipping import DEFAULT_LOGGERS, Shipper, logger_entry, shipping_seconds
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
    is_closed: bool = False

    @property
    def tracker(self) -> str:
        """The tracker's name in messages."""
        return logger_entry(self.logger).tracker_name(self.experiment.parent)

    def sync_command(self, target: Path | str, runs: Path) -> str:
        """Return the command that logs what is missing; ``target`` names the experiment."""
        command = next_command("sync", target, runs)
        if self.logger in DEFAULT_LOGGERS:
            return command
        return f"{command} --logger {self.logger}"

    def close(self, answer: Answer | None = None) -> None:
        """Signal the shipper to end after a final pass that logs the answer, without waiting for it."""
        if not self.is_closed:
            self.is_closed = True
            # A pipe holds 64 kB: a longer answer would wait for a shipper that is still being imported.
            threading.Thread(target=self._send_and_close, args=(answer,), daemon=True).start()

    def _send_and_close(self, answer: Answer | None) -> None:
        assert self.process.stdin is not None
        with suppress(OSError), self.process.stdin as pipe:
            pickle.dump(answer, pipe)

    def finish(self, sync: str, until: float, log: Callable[[str], object]) -> str | None:
        """Wait until everything is logged or ``time.monotonic`` reaches the deadline, then end the shipper.

        Returns:
            A message with the command to use if runs are missing in the tracker, else None.
        """
        self.close()
        try:
            if not self._ended(min(QUIET_SECONDS, until - time.monotonic())):
                left = until - time.monotonic()
                if left > 0:
                    more = f"logging to {self.tracker} for at most {left:.0f} s more"
                    log(f"{self.logger}: {more}; Ctrl-C leaves the rest to {sync}")
                self._ended(left)
        except KeyboardInterrupt as error:
            go_on_after(error)
        if self.process.poll() == 0:
            return None
        last = files.last_line(log_file(self.experiment, self.logger))
        reason = last.rpartition(" WARNING ")[2].partition("; no run is lost")[0]
        if self.process.poll() is None:
            if " WARNING " not in last:
                reason = "stopped early"
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


def logged_line(logger: str, runs: Path) -> str:
    """Return a line that a logger has everything, and how to open its charts; ``runs`` is the runs folder."""
    entry = logger_entry(logger)
    line = f"{logger}: all runs are logged to {entry.tracker_name(runs)}"
    if not entry.charts_command:
        return line
    return f"{line}; {next_command(entry.charts_command, None, runs)} opens the charts"


def log_file(experiment: Path, logger: str) -> Path:
    """Return the log of a shipper: in the experiment's folder, or in the cache if that folder is read-only."""
    name = f"shipper-{logger}.log"
    if os.access(experiment, os.W_OK):
        return checked_path(experiment, name)
    return logger_file(experiment, name)


def start_shipper(experiment: Path, logger: str) -> ShipperProcess | None:
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
    ]
    with file:
        process = children.start_program(
            command, stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True
        )
    assert process.stdin is not None
    with suppress(OSError):  # a process that has ended is reported by `finish`
        pickle.dump(_plugins_of(logger), process.stdin)
        process.stdin.flush()
    return ShipperProcess(experiment, logger, process)


def _plugins_of(logger: str) -> WorkerPlugins | None:
    """Return the plugins that a shipper loads; None for a logger that every process has."""
    if find_entry("logger", logger).is_built_in:
        return None
    return worker_plugins()


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
    with locked(shipper.folder, shipper.name, shipping_seconds()):
        return _finish(shipper)


def _finish(shipper: Shipper) -> bool:
    """Make the last pass, after an error of the tracker again for as long as the parent waits.

    A read-only disk does not become writable meanwhile.
    """
    until = time.monotonic() + shipping_seconds()
    pause = POLL_SECONDS
    while True:
        try:
            return shipper.finish()
        except DeniedError:
            raise
        except HeadToHeadError as error:
            cause = error.__cause__
            is_read_only = isinstance(cause, OSError) and cause.errno == errno.EROFS
            if is_read_only or time.monotonic() + pause > until:
                raise
            log.warning("%s; next attempt in %.0f s", error, pause)
        time.sleep(pause)
        pause *= 2


def main(folder_name: str, logger: str) -> int:
    """Run the shipper of an experiment's folder; its log is `log_file`."""
    folder = Path(folder_name)
    handler = logging.FileHandler(log_file(folder, logger), encoding="utf-8")
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    os.nice(NICENESS)
    shipper = Shipper(folder, logger)
    ended = threading.Event()

    def wait_for_the_end() -> None:
        content = sys.stdin.buffer.read()
        # A killed parent sends no answer, or a part of it.
        with suppress(EOFError, pickle.UnpicklingError):
            shipper.answer = pickle.loads(content)
        ended.set()

    try:
        plugins = pickle.load(sys.stdin.buffer)  # from the parent, through a pipe
        if plugins is not None:
            load_plugins(plugins)
        threading.Thread(target=wait_for_the_end, daemon=True).start()
        log.info("logging %s to %s", folder, logger)
        complete = follow(shipper, ended)
    except HeadToHeadError as error:
        log.warning(error)
        return INCOMPLETE
    except Exception:  # the log file is the only output of this process
        log.exception("the shipper failed; no run is lost, run h2h sync")
        return INCOMPLETE
    return 0 if complete else INCOMPLETE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
