"""Runs that are trained again: all (``--fresh``), failed (``--retry``), damaged (``--repair``) and STALE runs, and
incomplete runs of changed plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from headtohead.config.labels import listed
from headtohead.errors import HeadToHeadError
from headtohead.execution.scheduler import stacks_of
from headtohead.planning.plan import Plan
from headtohead.storage import states
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock
from headtohead.storage.metrics import counted
from headtohead.storage.paths import inside
from headtohead.storage.record import read_record
from headtohead.storage.run import HEADS, RUN, STATUS, RunRecord, stored_status
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased, now
from headtohead.storage.stack import STACKS, stack_folders

MAX_NAMES = 5
"""Number of damaged runs that a line lists."""


def archive_runs(experiment: Path) -> None:
    """Move all run directories and stacks of an experiment to ``.archived``, for ``--fresh``.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is moved.
    """
    if paths := run_directories(experiment):
        _archive(experiment, paths, stacks=True)


def with_reset(plan: Plan, log: Callable[[str], object], *, retry: bool) -> Plan:
    """Reset runs of a plan to PLANNED and return the plan with these states: incomplete runs with changed plugins.

    With ``retry``, failed runs too. Their records are removed, so that they get those of the present code. The resume
    points of their stacks are removed, so all members of these stacks without a final state begin at step 0.

    Raises:
        HeadToHeadError: If another process trains one of the runs; then nothing is changed.
    """
    own = [run for run in plan.selected if not run.reused_from]
    changed = [run for run in own if run.changed_plugins and run.state not in states.FINAL]
    reset = [*changed, *(run for run in own if retry and run.state in states.FAILURES)]
    if not reset:
        return plan
    if changed:
        changes = ", ".join(sorted({change for run in changed for change in run.changed_plugins}))
        log(
            f"from step 0, with all runs of their stacks: {counted(len(changed), 'incomplete run')} ({changes})"
        )
    paths = [inside(plan.directory, run.directory, tree=True) for run in reset]
    with layout_lock(plan.directory):
        stacks = stacks_of(plan.directory, {run.run_hash for run in reset})
        members = {*paths, *(run.path for folder in stacks for run in folder.open_runs())}
        with Lease(*members) as lease:
            for (
                folder
            ) in stacks:  # first: a kill between these writes must not resume without the histories
                folder.resume_points.clear()
            for path in members:
                RunWriter(path, lease).archive_metrics()
            for path in paths:
                RunWriter(path, lease).set_state(states.PLANNED)
                (path / RUN).unlink()
    runs = (
        run.model_copy(update={"state": states.PLANNED}) if run in reset else run
        for run in plan.runs
    )
    return replace(plan, runs=tuple(runs))


def move_damaged_runs(experiment: Path, log: Callable[[str], object]) -> set[str]:
    """Verify all files of an experiment's finished runs, and move the damaged runs to ``.archived``.

    The resume points of their stacks are removed, so that the runs are trained from the first step. A run
    without a result is moved if its record is unreadable. A damaged ``heads.json``, which is not a result of
    training, is removed. Other experiments are not changed.

    Returns:
        The damaged runs of other experiments that the experiment reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a damaged run; then nothing is moved.
    """
    damaged: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    finished = 0
    for status in sorted(experiment.glob(f"[!.]*/{STATUS}")):
        run = RunDirectory(inside(experiment, status.parent.name))
        name = run.path.name
        is_finished = _is_finished(run)
        finished += is_finished
        damage = _damage(run)
        if damage == HEADS:
            with leased(run.path) as writer:
                writer.remove_result(HEADS)
            log(
                f"{HEADS} of {name} is damaged and was removed; h2h ablate-heads {name} writes it anew"
            )
        elif damage is not None and is_finished:
            damaged[name] = damage
        elif damage is not None:
            unreadable[name] = damage
    if damaged or unreadable:
        _archive(experiment, [experiment / name for name in (*damaged, *unreadable)])
    if damaged:
        log(f"{len(damaged)} of {finished} finished runs damaged: {_named(damaged)}; retraining")
    else:
        log(f"none of {finished} finished runs is damaged")
    if unreadable:
        number = counted(len(unreadable), "run")
        log(f"damaged records of {number} without a result: {_named(unreadable)}; retraining")
    reused = _damaged_reused_runs(experiment)
    if reused:
        log(
            f"{len(reused)} reused runs of other experiments damaged: {_named(reused)}; training in "
            f"'{experiment.name}' instead, the other experiments are not changed"
        )
    return set(reused)


def _damaged_reused_runs(experiment: Path) -> dict[str, str]:
    """Return the damage of each damaged run of other experiments that the plan reuses, by ``reused_from``."""
    try:
        directory = ExperimentDirectory.read(experiment)
    except HeadToHeadError:  # an unreadable plan is rewritten
        return {}
    damaged: dict[str, str] = {}
    for planned in directory.record.runs:
        if planned.reused_from is None:
            continue
        try:
            path = planned.path(directory.path)
        except HeadToHeadError as error:  # a symbolic link, or a path outside the runs folder
            damaged[planned.reused_from] = str(error)
            continue
        damage = _damage(RunDirectory(path)) if path.exists() else None
        if damage not in (None, HEADS):
            damaged[planned.reused_from] = damage
    return damaged


def _named(damages: Mapping[str, str]) -> str:
    """Return the names of damaged runs, each with its damage."""
    return listed([f"{name} ({damage})" for name, damage in damages.items()], MAX_NAMES)


def move_stale_runs(plan: Plan, log: Callable[[str], object]) -> set[str]:
    """Move the STALE runs of a plan to ``.archived``, as `move_damaged_runs` moves damaged ones, if they are selected.

    Returns:
        The STALE runs of other experiments that the plan reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a STALE run; then nothing is moved.
    """
    stale = [run for run in plan.selected if run.stale]
    if own := [inside(plan.directory, run.directory) for run in stale if not run.reused_from]:
        _archive(plan.directory, own)
    log(f"{counted(len(stale), 'STALE run')}; retraining" if stale else "no run is STALE")
    return {run.reused_from for run in stale if run.reused_from}


def _archive(experiment: Path, runs: Collection[Path], *, stacks: bool = False) -> None:
    """Move runs, and the folder of stacks, to a new folder in ``.archived``; remove their resume points."""
    names = {run.name for run in runs}
    with layout_lock(experiment), Lease(*runs):
        for folder in stack_folders(experiment):
            if any(member.directory in names for member in folder.record.members):
                folder.resume_points.clear()
        archive = inside(experiment, ".archived", now().replace(":", ""))
        archive.mkdir(parents=True)
        for path in [*runs, experiment / STACKS] if stacks else runs:
            if path.exists():
                path.rename(archive / path.name)


def _is_finished(run: RunDirectory) -> bool:
    """Return whether a run has a result; a run with an unreadable status may have one."""
    try:
        return stored_status(run.path).state in states.RESULTS
    except HeadToHeadError:
        return True


def _damage(run: RunDirectory) -> str | None:
    """Return the first damaged or missing file of a run, or the error of an unreadable record.

    Returns ``HEADS`` if only this file is damaged, and None if no file is. A run without a result may have no
    ``run.json``, which is removed before the run is planned anew.
    """
    try:
        damages = run.damaged_files()
        if set(damages) == {HEADS}:
            return HEADS
        if not damages:
            read_record(RunRecord, run.path / RUN)
        return next((f"{file} {damage}" for file, damage in damages.items()), None)
    except HeadToHeadError as error:
        return str(error)
