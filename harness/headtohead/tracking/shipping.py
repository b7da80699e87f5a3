"""Logging of a study's run directories to a logger, by a single mechanism for all loggers."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import Answer, DeniedError, Logger, StudyLogger
from headtohead.plugins.registry import current, registered
from headtohead.storage import states
from headtohead.storage.paths import checked_path
from headtohead.storage.run import StatusRecord
from headtohead.tracking.study import (
    InUseError,
    ReceivedRuns,
    Step,
    TrackedRun,
    TrackedStudy,
    locked,
    logger_file,
)

DEFAULT_LOGGERS = ("mlflow",)
"""Names of the loggers of ``h2h run`` without ``--no-tracking`` and of ``h2h sync`` without ``--logger``."""

LIVE_SECONDS = 5.0
"""Minimum time between passes over active runs."""

# Maximum fraction of a core for passes over active runs, and for polling. With many runs, both are less frequent.
LIVE_SHARE = 0.02
MIN_PAUSE_SECONDS = 5.0
MAX_PAUSE_SECONDS = 60.0

NEWEST_SECONDS = 2.0
"""Age from which no further metrics of a run's newest step follow, except those of its results."""

log = logging.getLogger("headtohead.shipper")


@dataclass
class ShipReport:
    """The result of a pass: numbers of logged, unchanged and waiting runs, and failures with reasons."""

    experiment: str
    shipped: int = 0
    unchanged: int = 0
    waiting: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    link: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the tracker has all started runs."""
        return not self.failures

    def line(self) -> str:
        """Return the counts as a line of text."""
        line = f"{self.experiment}: {self.shipped} logged, {self.unchanged} unchanged"
        if self.waiting:
            line += f", {self.waiting} not started"
        if self.failures:
            line += f", {len(self.failures)} failed"
        return line


@dataclass
class OpenRun:
    """An attempt of a run that a logger has begun, and its last logged step."""

    logger: Logger
    attempt: int
    last: int


@dataclass
class Shipper:
    """Logs a study to a logger; ``seen`` holds `TrackedRun.modified` of each run when it was last shipped.

    A logger gets a run's new steps while the run is active, and its results when it has ended.
    """

    folder: Path
    name: str = DEFAULT_LOGGERS[0]
    uri: str | None = None
    answer: Answer | None = None
    """The answer of the study, logged in the last pass."""
    study_logger: StudyLogger | None = None
    received: ReceivedRuns | None = None
    runs: dict[str, OpenRun] = field(default_factory=dict)
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pause: float = 0.0
    next_poll: float = 0.0
    next_live: float = field(default_factory=lambda: time.monotonic() + LIVE_SECONDS)

    def poll(self) -> None:
        """Log the changes since the last poll; after failures, pause for increasing times."""
        if time.monotonic() < self.next_poll:
            return
        try:
            failure = self._log_changes()
        except HeadToHeadError as error:
            failure = str(error)
        if failure is None:
            self.pause = 0.0
            return
        self.pause = min(MAX_PAUSE_SECONDS, max(MIN_PAUSE_SECONDS, 2 * self.pause))
        self.next_poll = time.monotonic() + self.pause
        log.warning("%s; next attempt in %.0f s", failure, self.pause)

    def _log_changes(self) -> str | None:
        """Log the runs that have changed, active runs only if their next pass is due; return the last failure."""
        began = time.process_time()
        opened_before = {*self.runs}
        study = TrackedStudy.read(self.folder)
        is_live = time.monotonic() >= self.next_live
        due = [run for run in study.runs() if self._is_due(run, is_live)]
        self.next_poll = time.monotonic() + (time.process_time() - began) / LIVE_SHARE
        if not due:
            return None
        report = self.ship(study, due, is_last=False, is_live=is_live)
        log.info(report.line())
        if is_live:
            pause = LIVE_SECONDS
            # Imports, and beginning and ending runs, are no cost of later passes.
            if opened_before == {*self.runs}:
                pause = max(pause, (time.process_time() - began) / LIVE_SHARE)
            self.next_live = time.monotonic() + pause
        return report.failures[-1] if report.failures else None

    def finish(self) -> bool:
        """Log all that is missing; return whether the tracker has every started run."""
        report = self.ship()
        log.info("%s; %s", report.line(), report.link)
        # The parent prints the last line as the reason if the tracker is incomplete.
        for line in (*report.notes, *report.failures):
            log.warning(line)
        return report.complete

    def ship(
        self,
        study: TrackedStudy | None = None,
        runs: Sequence[TrackedRun] | None = None,
        *,
        is_last: bool = True,
        is_live: bool = False,
    ) -> ShipReport:
        """Log the changes of runs; with ``is_last`` close active runs without a process, and log the study's answer.

        With ``is_live``, log the progress of the study.

        Raises:
            HeadToHeadError: If the tracker cannot be used.
        """
        study = study or TrackedStudy.read(self.folder)
        report = ShipReport(study.name)
        try:
            if self.study_logger is None:
                self.study_logger = logger_entry(self.name).for_study(study, self.uri)
            self.study_logger.study = study
            with self.study_logger.opened():
                if self.received is None:
                    self.received = ReceivedRuns(
                        logger_file(study.path, f"{self.name}.json"), self.study_logger.received()
                    )
                # Before the runs: if time runs out, the answer is not what is missing.
                if is_last:
                    self.study_logger.describe(self.answer, is_last=True)
                elif is_live:
                    self.study_logger.describe(None, is_last=False)
                for run in study.runs() if runs is None else runs:
                    self._try(run, report, sweep=is_last)
                if is_last:
                    report.notes += self.study_logger.finish()
                report.link = self.study_logger.link
        except BaseException:
            for run_hash in [*self.runs]:
                self._abort(run_hash)
            self.study_logger = None
            self.received = None
            raise
        return report

    def _is_due(self, run: TrackedRun, is_live: bool) -> bool:
        """Return whether a run has news to log: in a live pass any change, otherwise its end."""
        if not run.begun() or self.seen.get(run.run_hash) == run.modified():
            return False
        try:
            return is_live or run.state not in states.PENDING
        except HeadToHeadError:  # a damaged status, reported as a failure
            return True

    def _try(self, run: TrackedRun, report: ShipReport, *, sweep: bool) -> None:
        """Log a run and count the outcome; a failure of this run does not end the pass."""
        if not run.begun():
            report.waiting += 1
            return
        modified = run.modified()
        try:
            is_shipped = self._ship_run(run, sweep=sweep)
        except Exception as error:
            assert self.study_logger is not None
            if not self.study_logger.concerns_run(error):
                raise
            self._abort(run.run_hash)
            is_message = isinstance(error, HeadToHeadError)
            reason = str(error) if is_message else current().describe(error)
            report.failures.append(f"{run.path.name}: {' '.join(reason.split())}")
            return
        self.seen[run.run_hash] = modified
        if is_shipped:
            report.shipped += 1
        else:
            report.unchanged += 1

    def _ship_run(self, run: TrackedRun, *, sweep: bool) -> bool:
        """Log the news of a run; return whether there was anything to log.

        With ``sweep``, an active run without a process is logged as ended.
        """
        assert self.received is not None
        checked_path(run.path, tree=True)  # the target of a symbolic link would be uploaded
        status = run.observed(sweep=sweep)
        content_hash = run.content_hash()
        if not self._has_news(run, status.state, content_hash):
            return False
        # With its status, so that each file of results does not read the status again.
        directory = replace(run, observed_status=status)
        steps = directory.steps()
        opened = self._opened(run, status.attempt)
        is_final = status.state not in states.PENDING
        if not is_final and _may_grow(steps, status):
            steps.pop()
        for step in steps:
            if step.step > opened.last:
                opened.logger.log(step.step, step.seconds, step.metrics)
                opened.last = step.step
        if not is_final:
            opened.logger.flush()
            return True
        opened.logger.end(status.state, _finite_results(directory, status.state))
        del self.runs[run.run_hash]
        self.received.add(run.run_hash, content_hash)
        return True

    def _has_news(self, run: TrackedRun, state: str, content_hash: str) -> bool:
        """Return whether a run is active, or the tracker lacks this content of an ended run."""
        assert self.received is not None
        assert self.study_logger is not None
        if state in states.PENDING:
            return state == states.RUNNING
        if not self.received.has(run.run_hash, content_hash):
            return True
        return not self.study_logger.logger(run).exists()

    def _opened(self, run: TrackedRun, attempt: int) -> OpenRun:
        """Return the open logger of a run; it begins anew for a further attempt, which may start at step 0."""
        assert self.received is not None
        assert self.study_logger is not None
        opened = self.runs.get(run.run_hash)
        if opened is not None and opened.attempt == attempt:
            return opened
        self._abort(run.run_hash)
        self.received.forget(run.run_hash)
        opened = OpenRun(self.study_logger.logger(run), attempt, -1)
        self.runs[run.run_hash] = opened
        opened.last = opened.logger.begin()
        return opened

    def _abort(self, run_hash: str) -> None:
        opened = self.runs.pop(run_hash, None)
        if opened is not None:
            with suppress(Exception):
                opened.logger.abort()


def _may_grow(steps: Sequence[Step], status: StatusRecord) -> bool:
    """Return whether further metrics of the newest step of an active run may follow."""
    if not steps:
        return False
    newest = steps[-1]
    return newest.step == status.steps or time.time() - newest.seconds < NEWEST_SECONDS


def _finite_results(run: TrackedRun, state: str) -> dict[str, float]:
    """Return the final metrics of a run that has results, without those that are not finite."""
    if state not in states.RESULTS:
        return {}
    return {
        name: float(value)
        for name, value in run.final_metrics.items()
        if value is not None and math.isfinite(value)
    }


def logger_entry(name: str) -> type[Logger]:
    """Return the class of a registered logger; raise a HeadToHeadError if there is none."""
    entry: type[Logger] = registered("logger", name)
    return entry


def shipping_seconds() -> float:
    """Return the time limit for a tracker, or for another process that logs: ``H2H_TRACKING_SECONDS``, else 60."""
    text = os.environ.get("H2H_TRACKING_SECONDS", "60")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", text):
        raise HeadToHeadError(f"H2H_TRACKING_SECONDS is '{text}'; expected a number of seconds")
    return float(text)


def ship(
    experiment_dir: Path,
    uri: str | None = None,
    *,
    logger: str = DEFAULT_LOGGERS[0],
    answer: Answer | None = None,
    log: Callable[[str], object] | None = None,
) -> ShipReport:
    """Log all runs of an experiment that a logger lacks or has in an earlier state.

    The function is idempotent. A run that cannot be logged is listed in the report, and the others are logged. If
    another process logs the experiment, this one waits for it for at most `shipping_seconds`. If that is not enough, or
    the tracker denies access, the report lists this as a failure.

    Args:
        experiment_dir: The experiment's folder.
        uri: The address of the tracker, for a logger that accepts one; default: that of the logger.
        logger: Name of the logger.
        answer: The answer of the study, such as that of ``headtohead.report.trackers.tracked_answer``.
        log: Receives a line if another process is waited for.

    Raises:
        HeadToHeadError: If the logger lacks a package, or its tracker cannot be used.
    """
    logger_entry(logger).require()
    TrackedStudy.read(experiment_dir)
    files.remove_leftovers(experiment_dir)
    try:
        with locked(experiment_dir, logger, shipping_seconds(), log):
            return Shipper(experiment_dir, logger, uri, answer).ship()
    except (InUseError, DeniedError) as error:
        return ShipReport(experiment_dir.name, failures=[str(error)])
