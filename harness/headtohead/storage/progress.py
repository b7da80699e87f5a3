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
from headtohead.storage.paths import inside
from headtohead.storage.run import METRICS
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import StackProgress, stack_folders
from headtohead.storage.staleness import stale_changes


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


def find_experiment(target: Path, runs_root: Path) -> Path:
    """Return the folder of an experiment that is given as its file, name or folder.

    Raises:
        HeadToHeadError: If the runs folder has no such experiment; suggests the nearest name.
    """
    is_file = target.suffix in (".yaml", ".yml")
    name = experiment_name(target) if is_file else target.name or str(target)
    if (target / EXPERIMENT).exists():
        return target
    if (runs_root / name / EXPERIMENT).exists():
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
    """Return the state of every run of an experiment's folder; ``file`` as in `stale_changes`."""
    experiment = ExperimentDirectory.read(folder)
    stacks = [(stack, stack.read_progress()) for stack in stack_folders(folder)]
    trained: dict[str, StackProgress] = {}
    for stack, found in stacks:
        with suppress(HeadToHeadError):  # split meanwhile, or damaged: only the progress is unknown
            trained |= {run.directory: found for run in stack.record.members} if found else {}
    runs = (
        _run(run.path(experiment.path), run, trained.get(run.directory))
        for run in experiment.record.runs
    )
    return ExperimentProgress(experiment.record, tuple(runs), stale_changes(experiment, file))


def _run(directory: Path, planned: PlannedRunRecord, stack: StackProgress | None) -> RunProgress:
    status = observe(directory)
    if METRICS in status.files:
        RunDirectory(directory, known=status).verified(METRICS)
    state, step, left = status.state, status.step, None
    if stack is not None and (
        state == states.RUNNING or state in states.ABNORMAL - {states.DIVERGED}
    ):
        step = step if state == states.FAILED and step else max(step, stack["step"])
        if state == states.RUNNING and stack["step"]:
            left = stack["seconds"] / stack["step"] * (stack["steps"] - stack["step"])
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


def seconds_left(progress: ExperimentProgress) -> float | None:
    """Return the time until all runs have ended, at the speed of the runs in training; None if none trains yet."""
    planned = progress.record.by_slug
    training = [(run, run.seconds_left) for run in progress.runs if run.seconds_left]
    if not training:
        return None
    steps = {
        run.directory: (run.steps or planned[run.variant].steps) - run.step for run in progress.runs
    }
    speed = sum(steps[run.directory] / left for run, left in training)
    todo = sum(steps[run.directory] for run in progress.runs if run.state in states.PENDING)
    return max(todo / max(speed, 1e-9), *(left for _, left in training))


def duration(seconds: float) -> str:
    """Return a duration in at most two units: ``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = max(1, round(seconds))
    for unit, size, smaller, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
