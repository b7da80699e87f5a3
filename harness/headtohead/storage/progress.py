"""Progress of an experiment, read from its run directories."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headtohead.config.loading import experiment_name
from headtohead.errors import HeadToHeadError, nearest, similar
from headtohead.storage import states
from headtohead.storage.experiment import (
    EXPERIMENT,
    ExperimentDirectory,
    ExperimentRecord,
    PlannedRunRecord,
)
from headtohead.storage.leases import observe
from headtohead.storage.paths import checked_path
from headtohead.storage.run import METRICS
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import StackProgress, stack_folders
from headtohead.storage.staleness import stale_changes

UNITS = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
"""Units of durations in seconds, each with the next smaller unit."""

FROM_STACK = (states.ABNORMAL - {states.DIVERGED}) | {states.RUNNING}
"""States of runs whose step is that of their stack."""


@dataclass(frozen=True)
class RunProgress:
    """The state and progress of a run; ``seconds_left`` is None if it does not train."""

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
    """The progress of all runs of an experiment, and what has changed since they were trained."""

    record: ExperimentRecord
    runs: tuple[RunProgress, ...]
    stale: tuple[str, ...]


def has_all_results(folder: Path) -> bool:
    """Return whether every recorded run of an experiment's folder has results.

    It has not if the record is missing, or if a record is damaged.
    """
    try:
        experiment = ExperimentDirectory.read(folder)
        recorded = [observe(run.path(experiment.path)) for run in experiment.record.runs]
    except HeadToHeadError:
        return False
    return all(status.state in states.RESULTS for status in recorded)


def find_experiment(target: Path, runs_root: Path) -> Path:
    """Return the folder of an experiment that is given as its file, name or folder.

    Raises:
        HeadToHeadError: If the runs folder has no such experiment; suggests the nearest name.
    """
    is_file = target.suffix in (".yaml", ".yml")
    name = target.name or str(target)
    command = "h2h run FILE"
    if is_file:
        name = experiment_name(target)
        command = shlex.join(["h2h", "run", str(target)])
    if (target / EXPERIMENT).exists():
        return target
    if (runs_root / name / EXPERIMENT).exists():
        return checked_path(runs_root, name)
    names = [path.parent.name for path in runs_root.glob(f"*/{EXPERIMENT}")]
    suggest = similar if target.is_file() else nearest
    hint = suggest(name, names) or f"; start with {command}"
    raise HeadToHeadError(f"no runs of '{name}' in '{runs_root}'{hint}")


def experiment_file(target: Path | str) -> Path | None:
    """Return the experiment file that a target of `find_experiment` is, or None for a name or a folder."""
    path = Path(target)
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    return None


def read_progress(folder: Path, file: Path | None = None) -> ExperimentProgress:
    """Return the state of every run of an experiment's folder; ``file`` as in `stale_changes`."""
    experiment = ExperimentDirectory.read(folder)
    by_run: dict[str, StackProgress] = {}
    for stack in stack_folders(folder):
        progress = stack.read_progress()
        if progress is None:
            continue
        with suppress(HeadToHeadError):  # split meanwhile, or damaged: only the progress is unknown
            for member in stack.record.members:
                by_run[member.directory] = progress
    runs = []
    for run in experiment.record.runs:
        runs.append(_run(run.path(experiment.path), run, by_run.get(run.directory)))
    return ExperimentProgress(experiment.record, tuple(runs), stale_changes(experiment, file))


def _run(directory: Path, planned: PlannedRunRecord, stack: StackProgress | None) -> RunProgress:
    """Return the progress of a run; ``stack`` is that of its stack, which is newer than the run's own."""
    status = observe(directory)
    if METRICS in status.files:
        RunDirectory(directory, observed_status=status).verified(METRICS)
    step = status.step
    left = None
    if stack is not None and status.state in FROM_STACK:
        has_own_step = status.state == states.FAILED and step
        if not has_own_step:
            step = max(step, stack["step"])
        if status.state == states.RUNNING and stack["step"]:
            seconds_per_step = stack["seconds"] / stack["step"]
            left = seconds_per_step * (stack["steps"] - stack["step"])
    return RunProgress(
        variant=planned.variant,
        seed=planned.seed,
        directory=planned.directory,
        state=status.state,
        reason=status.reason,
        step=step,
        steps=status.steps,
        seconds_left=left,
        attempt=status.attempt,
        reused_from=planned.reused_from,
    )


def seconds_left(progress: ExperimentProgress) -> float | None:
    """Return the time until all runs have ended, at the speed of the runs in training; None if none trains yet."""
    variants = progress.record.by_slug
    steps_per_second = 0.0
    steps_left = 0
    longest = None
    for run in progress.runs:
        steps = (run.steps or variants[run.variant].steps) - run.step
        if run.state in states.PENDING:
            steps_left += steps
        if run.seconds_left:
            steps_per_second += steps / run.seconds_left
            longest = max(longest or 0.0, run.seconds_left)
    if longest is None:
        return None
    return max(steps_left / max(steps_per_second, 1e-9), longest)


def duration(seconds: float) -> str:
    """Return a duration in at most two units: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(1, round(seconds))
    for unit, size, smaller_unit, smaller_size in UNITS:
        if whole >= size:
            text = f"{whole // size} {unit}"
            rest = whole % size // smaller_size
            return f"{text} {rest} {smaller_unit}" if rest else text
    return f"{whole} s"
