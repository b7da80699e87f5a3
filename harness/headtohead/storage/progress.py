"""Progress of an experiment, read from its run directories."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headtohead import files
from headtohead.config.loading import experiment_name
from headtohead.errors import HeadToHeadError, nearest, similar
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentDirectory, PlannedRunRecord
from headtohead.storage.histories import parse_metrics
from headtohead.storage.leases import observe
from headtohead.storage.paths import inside
from headtohead.storage.run import METRICS, StatusRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.staleness import stale_changes

_TAIL = 16_384
"""Number of bytes at the end of metrics.jsonl from which the pace is computed."""


@dataclass(frozen=True)
class RunProgress:
    """The state and progress of a run; ``seconds_left`` is None if the pace is unknown."""

    variant: str
    seed: int
    directory: str
    state: str
    reason: str | None
    step: int
    steps: int | None
    seconds_left: float | None
    attempt: int
    reused_from: str | None


@dataclass(frozen=True)
class ExperimentProgress:
    """The progress of all runs of an experiment; ``equal`` maps slugs of variants that are the same by construction.

    ``stale`` lists what has changed since the runs were trained.
    """

    name: str
    question: str
    runs: tuple[RunProgress, ...]
    equal: Mapping[str, str]
    stale: tuple[str, ...]

    def with_state(self, *states_of_interest: str) -> list[RunProgress]:
        """Return the runs in any of these states."""
        return [run for run in self.runs if run.state in states_of_interest]


def find_experiment(target: Path, runs_root: Path) -> Path:
    """Return the folder of an experiment that is given as its file, name or folder.

    Raises:
        HeadToHeadError: If the runs folder has no such experiment; suggests the nearest name.
    """
    is_file = target.suffix in (".yaml", ".yml")
    name = experiment_name(target) if is_file else target.name
    if (target / EXPERIMENT).exists():
        return target
    if name and (runs_root / name / EXPERIMENT).exists():
        return inside(runs_root, name)
    known = [path.parent.name for path in runs_root.glob(f"*/{EXPERIMENT}")]
    hint = nearest(name, known) if not target.is_file() else similar(name, known)
    run = shlex.join(["h2h", "run", str(target)]) if is_file else "h2h run FILE"
    raise HeadToHeadError(f"no runs of '{name}' in '{runs_root}'{hint or f'; start with {run}'}")


def experiment_file(target: Path | str) -> Path | None:
    """Return the experiment file that a target of `find_experiment` is, or None for a name or a folder."""
    path = Path(target)
    return path if path.suffix in (".yaml", ".yml") and path.is_file() else None


def read_progress(folder: Path, file: Path | None = None) -> ExperimentProgress:
    """Return the state of every run of an experiment's folder.

    Args:
        folder: The folder.
        file: The experiment file, if it is known; default: the recorded file.

    Raises:
        HeadToHeadError: If the folder is not an experiment, a record is damaged, or the history of a finished run has
            changed.
    """
    experiment = ExperimentDirectory.read(folder)
    runs = tuple(_run(experiment.run_path(planned), planned) for planned in experiment.record.runs)
    equal = {variant.slug: variant.equal_to for variant in experiment.record.variants if variant.equal_to}
    stale = stale_changes(experiment, file)
    return ExperimentProgress(experiment.name, experiment.record.question, runs, equal, stale)


def _run(directory: Path, planned: PlannedRunRecord) -> RunProgress:
    status, state = observe(directory)
    if METRICS in status.files:
        RunDirectory(directory, known=status).verified(METRICS)
    trained = state == states.RUNNING or state in states.ABNORMAL
    step, pace = _pace(directory / METRICS) if trained else (0, None)
    step = max(step, status.step)
    pace = pace or _pace_from_start(status, step)
    left = pace * (status.steps - step) if pace and status.steps and state == states.RUNNING else None
    return RunProgress(
        variant=planned.variant,
        seed=planned.seed,
        directory=planned.directory,
        state=state,
        reason=status.reason,
        step=step,
        steps=status.steps,
        seconds_left=left,
        attempt=status.attempt,
        reused_from=planned.reused_from,
    )


def _pace(metrics: Path) -> tuple[int, float | None]:
    """Return the last logged step and the recent seconds per step."""
    try:
        tail = files.read_tail(metrics, _TAIL)
    except FileNotFoundError:
        return 0, None
    # The tail may start in the middle of a line.
    points = {line.step: line.time for line in parse_metrics(tail) if line is not None}
    if not points:
        return 0, None
    first, last = min(points), max(points)
    seconds = points[last] - points[first]
    return last, seconds / (last - first) if last > first and seconds > 0 else None


def _pace_from_start(status: StatusRecord, step: int) -> float | None:
    """Return the seconds per step since the start of the run, including pauses before a resume."""
    if not status.started or step < 1:
        return None
    seconds = time.time() - datetime.fromisoformat(status.started).timestamp()
    return seconds / step if math.isfinite(seconds) and seconds > 0 else None


def duration(seconds: float) -> str:
    """Return a duration in at most two units: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(1, round(seconds))
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
