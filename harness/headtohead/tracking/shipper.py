"""The process that logs an experiment to MLflow or a logger: ``python -m headtohead.tracking.shipper``.

It polls the run directories at low priority. No other process waits for it, so a slow or unreachable store does not
slow down training. It ends when the parent creates the file ``.shipping-done`` or has ended, after a final pass over
all runs. Exit code 3: the store is incomplete, and ``h2h sync`` logs the rest.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from headtohead.children import process_start
from headtohead.errors import HeadToHeadError
from headtohead.escaping import VisibleFormatter
from headtohead.execution.shipper import DONE, log_file
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT
from headtohead.storage.objects import load_plugins
from headtohead.storage.paths import inside
from headtohead.tracking import environment
from headtohead.tracking.loggers import LoggerShipper, locked
from headtohead.tracking.replay import Destination
from headtohead.tracking.rundirs import TrackedRun, TrackedStudy
from headtohead.tracking.serving import server_of
from headtohead.tracking.shipping import ShipReport, opened, ship, ship_runs
from headtohead.tracking.store import Store, readable
from headtohead.tracking.study import describe, open_study

POLL_SECONDS = 1.0
LIVE_SECONDS = 8.0
# Maximum fraction of a core for logging active runs, and for polling. With many runs, polls are less frequent.
LIVE_SHARE = 0.02
MAX_PAUSE_SECONDS = 60.0
LAST_ATTEMPTS = 3
INCOMPLETE = 3
NICENESS = 10

log = logging.getLogger("headtohead.shipper")


@dataclass
class StudyShipper:
    """Follows an experiment's folder; ``seen`` holds `TrackedRun.modified` of each run when it was last shipped."""

    folder: Path
    uri: str
    reports: Path | None = None
    destination: Destination | None = None
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict)
    live_since: dict[str, float] = field(default_factory=dict)
    live_seconds: float = LIVE_SECONDS
    pause: float = 0.0
    next_try: float = 0.0
    poll_seconds: float = 0.0
    """Processor time of the last poll, without logging."""

    def poll(self) -> None:
        """Log the changes since the last poll; after failures, pause for increasing times."""
        if time.monotonic() < self.next_try:
            return
        began = time.process_time()
        try:
            study = TrackedStudy.read(self.folder)
            due = [run for run in study.runs() if self._due(run)]
            self.poll_seconds = time.process_time() - began
            if due:
                self._ship(study, due)
        except HeadToHeadError as error:
            self.destination = None
            self.pause = min(MAX_PAUSE_SECONDS, max(5.0, 2 * self.pause))
            self.next_try = time.monotonic() + self.pause
            log.warning("%s; next attempt in %.0f s", error, self.pause)
        else:
            self.pause = 0.0

    def finish(self) -> bool:
        """Log all missing runs and the experiment's summary run; return whether the store is complete."""
        for attempt in range(1, LAST_ATTEMPTS + 1):
            try:
                report = ship(self.folder, self.uri, reports_root=self.reports)
            except HeadToHeadError as error:
                log.warning("attempt %d of %d: %s", attempt, LAST_ATTEMPTS, error)
            else:
                _log_report(report)
                if report.complete:
                    log.info("view: %s", report.link(server_of(self.uri)))
                    return True
            time.sleep(attempt if attempt < LAST_ATTEMPTS else 0)
        return False

    def _due(self, run: TrackedRun) -> bool:
        if self.seen.get(run.run_hash) == run.modified() or not run.begun():
            return False
        if run.state_or_unreadable() in states.PENDING:
            since = self.live_since.setdefault(run.run_hash, time.monotonic())
            return time.monotonic() - since >= self.live_seconds
        return True

    def _ship(self, study: TrackedStudy, due: list[TrackedRun]) -> None:
        modified, began = {run.run_hash: run.modified() for run in due}, time.process_time()
        with opened(self.uri) as store:
            destination = self._destination(store, study, due)
            report = ShipReport(study.name, self.uri, destination.experiment_id)
            ship_runs(destination, study, due, report, sweep=False)
        self.seen |= modified
        self.live_since |= dict.fromkeys(modified, time.monotonic())
        self.live_seconds = max(LIVE_SECONDS, (time.process_time() - began) / LIVE_SHARE)
        _log_report(report)

    def _destination(self, store: Store, study: TrackedStudy, due: list[TrackedRun]) -> Destination:
        if self.destination is None:
            self.destination = open_study(store, study)
            describe(self.destination, study)
        elif any(run.run_hash not in self.destination.logged_runs for run in due):
            self.destination.refresh()
        return self.destination


def follow(shipper: StudyShipper | LoggerShipper, parent: int) -> bool:
    """Log runs while the parent runs, then all missing runs; return whether the store is complete."""
    done, next_poll = shipper.folder / DONE, 0.0
    started = process_start(parent)
    while started is not None and process_start(parent) == started and not done.exists():
        if time.monotonic() >= next_poll and (shipper.folder / EXPERIMENT).is_file():
            shipper.poll()
            next_poll = time.monotonic() + shipper.poll_seconds / LIVE_SHARE
        time.sleep(POLL_SECONDS)
    return shipper.finish()


def main(arguments: list[str] | None = None) -> int:
    """Run the shipper; the log is in the experiment's folder: ``shipper.log``, or ``shipper-<logger>.log``."""
    parser = argparse.ArgumentParser(prog="headtohead.tracking.shipper", description=__doc__)
    parser.add_argument("folder", type=Path, help="the experiment's folder")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--uri", help="the MLflow store")
    target.add_argument("--logger", help="a registered logger; plugins are read from standard input")
    parser.add_argument("--reports", type=Path, help="the folder of reports; default: beside the runs folder")
    parser.add_argument("--parent", type=int, required=True, help="process to follow")
    options = parser.parse_args(arguments)
    _log_to(inside(options.folder, log_file(options.logger)))
    if options.uri and not environment.installed():
        log.warning(environment.ABSENT.format(runs=options.folder.parent))
        return INCOMPLETE
    os.nice(NICENESS)
    try:
        if options.logger:
            load_plugins(pickle.load(sys.stdin.buffer))  # from the parent, through a pipe
            log.info("logging %s to %s", options.folder, options.logger)
            with locked(options.folder, options.logger):
                complete = follow(LoggerShipper(options.folder, options.logger), options.parent)
        else:
            log.info("shipping %s to %s", options.folder, readable(options.uri))
            complete = follow(StudyShipper(options.folder, options.uri, options.reports), options.parent)
    except HeadToHeadError as error:
        log.warning(error)
        return INCOMPLETE
    except Exception:
        log.exception("the shipper failed; no run is lost, run h2h sync")
        return INCOMPLETE
    return 0 if complete else INCOMPLETE


def _log_report(report: ShipReport) -> None:
    log.info(report.line())
    # The parent prints the last line as the reason if the store is incomplete.
    for line in (*report.notes, *report.failures):
        log.warning(line)


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


if __name__ == "__main__":
    sys.exit(main())
