"""Logging of a study's run directories to MLflow or another logger, by a single mechanism for all of them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from headtohead import files
from headtohead.config.project import reports_folder
from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import Logger
from headtohead.plugins.registry import registered
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.tracking.store import DeniedError
from headtohead.tracking.study import InUseError, StudyLogger, TrackedRun, TrackedStudy, locked

MLFLOW = "mlflow"
"""Name of the logger that headtohead itself provides and that is used by default."""

LIVE_SECONDS = 5.0
"""Minimum time between passes over active runs."""

# Maximum fraction of a core for passes over active runs, and for polling. With many runs, both are less frequent.
LIVE_SHARE = 0.02
MAX_PAUSE_SECONDS = 60.0

LOCK_SECONDS = 10.0
"""Waiting time for the last pass of another process over the same study."""

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
        others = {"not started": self.waiting, "failed": len(self.failures)}
        more = "".join(f", {count} {what}" for what, count in others.items() if count)
        return f"{self.experiment}: {self.shipped} logged, {self.unchanged} unchanged{more}"


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
    name: str = MLFLOW
    uri: str | None = None
    reports: Path | None = None
    tracker: StudyLogger | None = None
    runs: dict[str, OpenRun] = field(default_factory=dict)
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pause: float = 0.0
    next_poll: float = 0.0
    next_live: float = field(default_factory=lambda: time.monotonic() + LIVE_SECONDS)

    def poll(self) -> None:
        """Log the changes since the last poll; after failures, pause for increasing times."""
        if time.monotonic() < self.next_poll:
            return
        began, reason, opened = time.process_time(), None, {*self.runs}
        try:
            study = TrackedStudy.read(self.folder)
            is_live = time.monotonic() >= self.next_live
            due = [run for run in study.runs() if self._due(run, is_live)]
            self.next_poll = time.monotonic() + (time.process_time() - began) / LIVE_SHARE
            if due:
                report = self.ship(study, due, is_last=False, is_live=is_live)
                log.info(report.line())
                reason = report.failures[-1] if report.failures else None
                if is_live:
                    # Imports, and beginning and ending runs, are no cost of later passes.
                    cost = time.process_time() - began if opened == {*self.runs} else 0.0
                    self.next_live = time.monotonic() + max(LIVE_SECONDS, cost / LIVE_SHARE)
        except HeadToHeadError as error:
            reason = str(error)
        self.pause = min(MAX_PAUSE_SECONDS, max(5.0, 2 * self.pause)) if reason else 0.0
        if reason:
            self.next_poll = time.monotonic() + self.pause
            log.warning("%s; next attempt in %.0f s", reason, self.pause)

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
            self.tracker = self.tracker or self._tracker(study)
            self.tracker.study = study
            with self.tracker.opened():
                if (
                    is_last or is_live
                ):  # before the runs: if time runs out, the answer is not what is missing
                    self.tracker.describe(is_last=is_last)
                for run in study.runs() if runs is None else runs:
                    self._try(self.tracker, run, report, is_last)
                if is_last:
                    report.notes += self.tracker.finish()
                report.link = self.tracker.link
        except BaseException:
            for run_hash in [*self.runs]:
                self._abort(run_hash)
            self.tracker = None
            raise
        return report

    def _tracker(self, study: TrackedStudy) -> StudyLogger:
        reports = reports_folder(study.path.resolve().parent, self.reports)
        if self.name != MLFLOW:
            return StudyLogger(self.name, study, reports)
        from headtohead.tracking.mlflow_study import MlflowStudy

        return MlflowStudy(self.name, study, reports, uri=self.uri or "")

    def _due(self, run: TrackedRun, is_live: bool) -> bool:
        if not run.begun() or self.seen.get(run.run_hash) == run.modified():
            return False
        try:
            return is_live or run.state not in states.PENDING
        except HeadToHeadError:  # a damaged status, reported as a failure
            return True

    def _try(self, tracker: StudyLogger, run: TrackedRun, report: ShipReport, sweep: bool) -> None:
        """Log a run and count the outcome; a failure of this run does not end the pass."""
        if not run.begun():
            report.waiting += 1
            return
        modified = run.modified()
        try:
            shipped = self._ship(tracker, run, sweep)
        except Exception as error:
            reason = tracker.failure(error)
            if reason is None:
                raise
            self._abort(run.run_hash)
            report.failures.append(f"{run.path.name}: {' '.join(reason.split())}")
            return
        self.seen[run.run_hash] = modified
        report.shipped += shipped
        report.unchanged += not shipped

    def _ship(self, tracker: StudyLogger, run: TrackedRun, sweep: bool) -> bool:
        """Return whether anything was logged."""
        inside(run.path, tree=True)  # the target of a symbolic link would be uploaded
        status = run.observed(sweep=sweep)
        state = status.state
        is_final, content_hash = state not in states.PENDING, run.content_hash()
        is_received = tracker.received.get(run.run_hash) == content_hash
        if is_received and tracker.logger(run).exists() if is_final else state != states.RUNNING:
            return False
        directory = replace(
            run, known=status
        )  # so that each file of results does not read the status again
        steps = directory.steps()
        opened = self.runs.get(run.run_hash)
        if opened is not None and opened.attempt != status.attempt:  # which may begin at step 0
            self._abort(run.run_hash)
            opened = None
        if opened is None:
            tracker.received.pop(run.run_hash, None)
            logger = tracker.logger(run)
            opened = self.runs[run.run_hash] = OpenRun(logger, status.attempt, -1)
            opened.last = logger.begin()
        newest = steps[-1] if steps else None
        if (
            not is_final
            and newest
            and (newest.step == status.steps or time.time() - newest.seconds < NEWEST_SECONDS)
        ):
            steps.pop()  # further metrics of this step may follow
        for step, seconds, metrics in steps:
            if step > opened.last:
                opened.logger.log(step, seconds, metrics)
                opened.last = step
        if not is_final:
            opened.logger.flush()
            return True
        final = directory.final_metrics if state in states.RESULTS else {}
        finite = {
            name: float(value)
            for name, value in final.items()
            if value is not None and math.isfinite(value)
        }
        opened.logger.end(state, finite)
        del self.runs[run.run_hash]
        tracker.keep(run, content_hash)
        return True

    def _abort(self, run_hash: str) -> None:
        if opened := self.runs.pop(run_hash, None):
            with suppress(Exception):
                opened.logger.abort()


def require(name: str) -> None:
    """Raise HeadToHeadError if a logger is unknown or lacks a package."""
    if name != MLFLOW:
        registered("logger", name).require()


def ship(
    experiment_dir: Path,
    uri: str | None = None,
    *,
    logger: str = MLFLOW,
    reports: Path | None = None,
) -> ShipReport:
    """Log all runs of an experiment that a logger lacks or has in an earlier state.

    The function is idempotent. A run that cannot be logged is listed in the report, and the others are logged. If
    another process logs the experiment while it trains, or its last pass does not end within `LOCK_SECONDS`, or the
    tracker denies access, the report lists this as a failure.

    Args:
        experiment_dir: The experiment's folder.
        uri: The MLflow store; default: ``MLFLOW_TRACKING_URI``, else a database beside the runs folder.
        logger: Name of the logger.
        reports: The folder of all reports; default: beside the runs folder.

    Raises:
        HeadToHeadError: If the logger lacks a package, or its tracker cannot be used.
    """
    require(logger)
    TrackedStudy.read(experiment_dir)
    files.remove_leftovers(experiment_dir)
    try:
        with locked(experiment_dir, logger, LOCK_SECONDS):
            return Shipper(experiment_dir, logger, uri, reports).ship()
    except (InUseError, DeniedError) as error:
        return ShipReport(experiment_dir.name, failures=[str(error)])
