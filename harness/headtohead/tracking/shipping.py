"""Logging of a whole experiment to MLflow: each changed run, then the experiment's summary run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError

from headtohead import files
from headtohead.config.project import reports_folder
from headtohead.errors import HeadToHeadError
from headtohead.tracking import environment
from headtohead.tracking.replay import Destination, replay
from headtohead.tracking.rundirs import TrackedRun, TrackedStudy
from headtohead.tracking.store import Store, default_uri, locked, one_line, open_store
from headtohead.tracking.study import close_study, describe, open_study
from headtohead.tracking.view import TESTED, link, tested

RUNS_PER_ANALYZE = 500
# Errors caused by damaged run directories. Errors of the store end the pass.
DAMAGED = (HeadToHeadError, KeyError, TypeError, ValueError, IndexError, FileNotFoundError, SafetensorError)
REFUSED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})


@dataclass
class ShipReport:
    """The result of a pass: numbers of logged, unchanged and waiting runs, and failures with reasons."""

    experiment: str
    uri: str
    experiment_id: str
    shipped: int = 0
    unchanged: int = 0
    waiting: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all started runs are in the store."""
        return not self.failures

    def link(self, server: str) -> str:
        """Return the link to the experiment's page on a server."""
        return link(self.experiment_id, server)

    def line(self) -> str:
        """Return the counts as a line of text."""
        counts = f"{self.shipped} shipped, {self.unchanged} unchanged"
        if self.waiting:
            counts += f", {self.waiting} not started"
        if self.failures:
            counts += f", {len(self.failures)} failed"
        return f"{self.experiment}: {counts}"


def ship(experiment_dir: Path, uri: str | None = None, *, reports_root: Path | None = None) -> ShipReport:
    """Log all runs of an experiment that are missing or outdated in the store.

    The function is idempotent. A run that cannot be logged is listed in the report, and the others are logged.

    Raises:
        HeadToHeadError: If mlflow is not installed or the store cannot be used.
    """
    study = TrackedStudy.read(experiment_dir)
    uri = uri or default_uri(experiment_dir.parent)
    environment.require(str(experiment_dir.parent))
    files.remove_leftovers(experiment_dir)
    with opened(uri) as store:
        destination = open_study(store, study)
        describe(destination, study)
        report = ShipReport(study.name, uri, destination.experiment_id)
        ship_runs(destination, study, study.runs(), report, sweep=True)
        close_study(destination, study, reports_folder(experiment_dir.resolve().parent, reports_root))
        report.notes += _version_notes()
        store.analyze()
    return report


def ship_runs(
    destination: Destination, study: TrackedStudy, runs: Sequence[TrackedRun], report: ShipReport, *, sweep: bool
) -> None:
    """Replay the started runs and count the outcomes in ``report``."""
    for run in runs:
        if not run.begun():
            report.waiting += 1
        elif _replayed(destination, study, run, report, sweep):
            report.shipped += 1
            if report.shipped % RUNS_PER_ANALYZE == 0:
                destination.store.analyze()


@contextmanager
def opened(uri: str) -> Iterator[Store]:
    """Open a store under its lock; convert its errors into HeadToHeadError."""
    environment.load()
    with locked(uri), one_line(uri):
        yield open_store(uri, create=True)


def _version_notes() -> list[str]:
    version = environment.load().__version__
    if tested(version):
        return []
    return [
        f"the saved view was tested with MLflow {', '.join(TESTED)}, not {version}; "
        "if its link fails, the experiment's page shows the same runs"
    ]


def _replayed(destination: Destination, study: TrackedStudy, run: TrackedRun, report: ShipReport, sweep: bool) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        sent = replay(destination, study, run, sweep=sweep)
    except DAMAGED as error:
        report.failures.append(f"{run.path.name}: {type(error).__name__}: {error}")
        return False
    except MlflowException as error:
        if error.error_code not in REFUSED:
            raise
        report.failures.append(f"{run.path.name}: {error.message}")
        return False
    if not sent:
        report.unchanged += 1
    return sent
