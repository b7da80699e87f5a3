"""Logging of run directories to the loggers that plugins register.

``.loggers/<name>.json`` in the experiment's folder has the content hash of each run that a logger has received as a
whole. A run without an entry begins again, so that a killed process repeats no step: see `Logger`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import LoggedRun, Logger
from headtohead.plugins.registry import current
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.record import read_record
from headtohead.tracking.rundirs import TrackedRun, TrackedStudy

FOLDER = ".loggers"
LIVE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 60.0
LAST_ATTEMPTS = 3

log = logging.getLogger("headtohead.shipper")

Step = tuple[int, float, dict[str, float]]
"""Step, time in seconds since 1970, and metrics."""


@dataclass
class OpenRun:
    """A run that a logger has begun, its last logged step, and the names of the metrics that were logged here."""

    logger: Logger
    last: int
    names: set[str] = field(default_factory=set)


@dataclass
class LoggerShipper:
    """Sends the runs of an experiment to a logger; `follow` calls it as it calls `StudyShipper`."""

    folder: Path
    name: str
    runs: dict[str, OpenRun] = field(default_factory=dict)
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    shipped: int = 0
    pause: float = 0.0
    next_try: float = 0.0
    poll_seconds: float = 0.0

    def poll(self) -> None:
        """Log new steps of all runs; after a failure, pause for increasing times."""
        if time.monotonic() < self.next_try:
            return
        began = time.process_time()
        self.send(sweep=False)
        self.poll_seconds = time.process_time() - began
        self.pause = min(MAX_PAUSE_SECONDS, max(5.0, 2 * self.pause)) if self.failures else 0.0
        self.next_try = time.monotonic() + max(self.pause, LIVE_SECONDS)

    def finish(self) -> bool:
        """Log all that is missing; return whether the logger has received every started run."""
        for attempt in range(1, LAST_ATTEMPTS + 1):
            self.send(sweep=True)
            if not self.failures:
                return True
            time.sleep(attempt if attempt < LAST_ATTEMPTS else 0)
        return False

    def send(self, *, sweep: bool) -> None:
        """Log the changes of all runs since the last call; ``failures`` then has a line for each failed run.

        With ``sweep``, an active run without a live process is closed as KILLED.
        """
        self.failures = []
        try:
            study = TrackedStudy.read(self.folder)
            complete = self._read()
        except HeadToHeadError as error:
            self._fail(str(error))
            return
        for run in study.runs():
            if not run.begun() or (not sweep and self.seen.get(run.run_hash) == run.modified()):
                continue
            modified = run.modified()
            try:
                self._send(study, run, complete, sweep=sweep)
            except Exception as error:  # the logger's code, and damaged run directories
                if opened := self.runs.pop(run.run_hash, None):
                    with suppress(Exception):
                        opened.logger.abort()
                reason = str(error) if isinstance(error, HeadToHeadError) else current().describe(error)
                self._fail(f"{run.path.name}: {reason}")
            else:
                self.seen[run.run_hash] = modified

    def _send(self, study: TrackedStudy, run: TrackedRun, complete: dict[str, str], *, sweep: bool) -> None:
        inside(run.path, tree=True)
        status, state, _ = run.observed(sweep=sweep)
        is_final = state not in states.PENDING
        content_hash = run.content_hash()
        if complete.get(run.run_hash) == content_hash or (not is_final and state != states.RUNNING):
            return
        steps = steps_of(run)
        opened = self.runs.get(run.run_hash)
        if opened is None:
            logger = current().logger(self.name)(_logged_run(study, run, self.folder))
            opened = self.runs[run.run_hash] = OpenRun(logger, -1)
            opened.last = logger.begin()
            # An earlier process has logged these steps, but test metrics can follow a step that it logged.
            earlier = {name for step, _, metrics in steps if step <= opened.last for name in metrics}
            opened.names = {name for name in earlier if not name.startswith("test/")}
        # Further metrics of the newest step may follow.
        new = [step for step in (steps if is_final else steps[:-1]) if step[0] > opened.last]
        for step, seconds, metrics in new:
            opened.logger.log(step, seconds, metrics)
            opened.last = step
            opened.names |= metrics.keys()
        if not is_final:
            if new:
                opened.logger.flush()
            return
        results = run.results_of(status) if state in states.RESULTS else None
        final = {**results.metrics, **run.head_metrics_of(status)} if results else {}
        # With early stopping, the test metrics have an earlier step than the last one, so they are logged here.
        opened.logger.end(state, {name: v for name, v in _finite(final).items() if name not in opened.names})
        del self.runs[run.run_hash]
        complete[run.run_hash] = content_hash
        files.write_json(self._path(), complete)
        self.shipped += 1

    def _path(self) -> Path:
        return inside(self.folder, FOLDER, f"{self.name}.json")

    def _read(self) -> dict[str, str]:
        """Return the content hashes of complete runs; a damaged file counts as missing, so all runs begin again."""
        self._path().parent.mkdir(exist_ok=True)
        try:
            return read_record(dict[str, str], self._path()) or {}
        except HeadToHeadError:
            return {}

    def _fail(self, reason: str) -> None:
        line = f"{self.name}: {' '.join(reason.split())}"
        self.failures.append(line)
        log.warning(line)


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the right to send the runs of an experiment to a logger.

    Raises:
        HeadToHeadError: If another process holds it.
    """
    path = inside(folder, FOLDER, f"{name}.lock")
    path.parent.mkdir(exist_ok=True)
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise HeadToHeadError(f"another process logs '{folder.name}' to {name}; wait until it ends") from None


def send_all(folder: Path, name: str) -> LoggerShipper:
    """Log all runs of an experiment that a logger lacks, and return the counts and failures.

    Raises:
        HeadToHeadError: If the logger is unknown, lacks a package, or another process uses it for this experiment.
    """
    current().logger(name).require()
    shipper = LoggerShipper(folder, name)
    with locked(folder, name):
        shipper.send(sweep=True)
    return shipper


def steps_of(run: TrackedRun) -> list[Step]:
    """Return the metrics of a run by step, without values that are not finite."""
    found: dict[int, Step] = {}
    for name, points in run.histories().items():
        for point in points:
            if math.isfinite(point.value):
                step = found.setdefault(point.step, (point.step, point.time / 1000, {}))
                step[2][name] = point.value
    return [found[step] for step in sorted(found)]


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}


def _logged_run(study: TrackedStudy, run: TrackedRun, folder: Path) -> LoggedRun:
    return LoggedRun(
        experiment=study.name,
        name=run.path.name,
        run_hash=run.run_hash,
        variant=run.variant.title,
        seed=run.seed,
        axes=run.variant.axes,
        config=run.record.config,
        root=folder.resolve().parent.parent,
        directory=run.path,
    )
