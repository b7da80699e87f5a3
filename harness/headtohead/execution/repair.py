"""Runs that are trained again: all (``--fresh``), failed (``--retry``), damaged (``--repair``) and STALE runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.execution.scheduler import stacks_of
from headtohead.planning.plan import Plan
from headtohead.storage import states
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock
from headtohead.storage.paths import inside
from headtohead.storage.run import HEADS, STATUS
from headtohead.storage.run_directory import RunDirectory, RunWriter, now
from headtohead.storage.stack import STACKS, stack_folders

SHOWN = 5
"""Number of damaged runs that a line lists."""


def archive_runs(experiment: Path) -> None:
    """Move all run directories and stacks of an experiment to ``.archived``, for ``--fresh``.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is moved.
    """
    if paths := run_directories(experiment):
        with _exclusive(experiment, paths):
            archive = _archive(experiment, paths)
            if (experiment / STACKS).exists():
                (experiment / STACKS).rename(archive / STACKS)


def with_failed_reset(plan: Plan) -> Plan:
    """Reset the failed runs of a plan to PLANNED and return the plan with these states, for ``--retry``.

    The resume points of their stacks are removed, so all members of these stacks without a final state begin at step 0.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is changed.
    """
    failed = [run for run in plan.selected if run.state in states.RETRYABLE and not run.reused_from]
    if not failed:
        return plan
    paths = [inside(plan.directory, run.directory, tree=True) for run in failed]
    with layout_lock(plan.directory):
        stacks = stacks_of(plan.directory, {run.run_hash for run in failed})
        members = {*paths, *(run.path for folder in stacks for run in folder.open_runs())}
        with Lease(*members) as lease:
            for folder in stacks:  # first: a kill between these writes must not resume without the histories
                folder.resume_points.clear()
            for path in members:
                RunWriter(path, lease).archive_metrics()
            for path in paths:
                RunWriter(path, lease).set_state(states.PLANNED)
    runs = (run.model_copy(update={"state": states.PLANNED}) if run in failed else run for run in plan.runs)
    return replace(plan, runs=tuple(runs))


def move_damaged_runs(experiment: Path, log: Callable[[str], object]) -> set[str]:
    """Verify all files of an experiment's finished runs, and move the damaged runs to ``.archived``.

    The resume points of their stacks are removed, so that the runs are trained from the first step. A damaged
    ``heads.json``, which is not a result of training, is removed. Other experiments are not changed.

    Args:
        experiment: The experiment's folder.
        log: Receives what was found.

    Returns:
        The damaged runs of other experiments that the experiment reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a damaged run; then nothing is moved.
    """
    paths = sorted(experiment.glob(f"[!.]*/{STATUS}"))
    runs = [RunDirectory(inside(experiment, path.parent.name)) for path in paths]
    found = {run.path: damage for run in runs if (damage := _damage(run))}
    heads = [path for path, damage in found.items() if set(damage) == {HEADS}]
    damaged = {path.name: damage for path, damage in found.items() if path not in heads}
    if found:
        with _exclusive(experiment, found) as lease:
            for path in heads:
                RunWriter(path, lease).remove_result(HEADS)
                log(f"{HEADS} of {path.name} is damaged and was removed; h2h ablate-heads {path.name} writes it anew")
            if damaged:
                _archive(experiment, [experiment / name for name in damaged])
    finished = sum(1 for run in runs if run.path in found or run.state in states.RESULTS)
    retrained = f"{len(damaged)} of {finished} finished runs damaged: {_listed(damaged)}; retraining"
    log(retrained if damaged else f"none of {finished} finished runs is damaged")
    reused: dict[str, dict[str, str]] = {}
    with suppress(HeadToHeadError):  # an unreadable plan is rewritten
        directory = ExperimentDirectory.read(experiment)
        for planned in directory.record.runs:
            if planned.reused_from and (path := planned.path(directory.path)).exists():
                damage = _damage(RunDirectory(path))
                if damage and set(damage) != {HEADS}:
                    reused[planned.reused_from] = damage
    if reused:
        log(
            f"{len(reused)} reused runs of other experiments damaged: {_listed(reused)}; training in "
            f"'{experiment.name}' instead, the other experiments are not changed"
        )
    return set(reused)


def move_stale_runs(plan: Plan, log: Callable[[str], object]) -> set[str]:
    """Move the STALE runs of a plan to ``.archived``, as ``move_damaged_runs`` moves damaged runs.

    Args:
        plan: The plan; of a limited plan, the selected runs are moved.
        log: Receives what was found.

    Returns:
        The STALE runs of other experiments that the plan reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a STALE run; then nothing is moved.
    """
    stale = [run for run in plan.selected if run.stale]
    if own := [inside(plan.directory, run.directory) for run in stale if not run.reused_from]:
        with _exclusive(plan.directory, own):
            _archive(plan.directory, own)
    many = f"{len(stale)} finished {'run is' if len(stale) == 1 else 'runs are'} STALE; retraining"
    log(many if stale else "no run is STALE")
    return {run.reused_from for run in stale if run.reused_from}


@contextmanager
def _exclusive(experiment: Path, runs: Collection[Path]) -> Iterator[Lease]:
    """Hold the layout lock of an experiment and the leases of runs, or raise HeadToHeadError."""
    with layout_lock(experiment), Lease(*runs) as lease:
        yield lease


def _archive(experiment: Path, runs: Collection[Path]) -> Path:
    """Move runs to a new folder in ``.archived`` and return it; remove the resume points of their stacks."""
    names = {run.name for run in runs}
    for folder in stack_folders(experiment):
        if any(member.directory in names for member in folder.record.members):
            folder.resume_points.clear()
    archive = inside(experiment, ".archived", now().replace(":", ""))
    archive.mkdir(parents=True)
    for run in runs:
        run.rename(archive / run.name)
    return archive


def _listed(damaged: Mapping[str, Mapping[str, str]]) -> str:
    """Return the names of the first damaged runs, each with its first damaged file."""
    texts = []
    for name, damages in damaged.items():
        file, damage = next(iter(damages.items()))
        texts.append(f"{name} ({f'{file} {damage}'.strip()})")
    return ", ".join(texts[:SHOWN]) + (f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")


def _damage(run: RunDirectory) -> dict[str, str]:
    """Return the damage of each damaged or missing file of a run; of an unreadable record, the error."""
    try:
        damages = run.damaged_files()
        if not damages:
            run.record  # noqa: B018
        return damages
    except HeadToHeadError as error:
        return {"": str(error)}
