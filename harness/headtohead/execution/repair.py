"""Runs that are trained again: all (``--fresh``), failed (``--retry``), damaged (``--repair``) and STALE runs, and
incomplete runs of changed plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
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
from headtohead.storage.run import HEADS, RUN, STATUS
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
        log(f"from step 0, with all runs of their stacks: {counted(len(changed), 'incomplete run')} ({changes})")
    paths = [inside(plan.directory, run.directory, tree=True) for run in reset]
    with layout_lock(plan.directory):
        stacks = stacks_of(plan.directory, {run.run_hash for run in reset})
        members = {*paths, *(run.path for folder in stacks for run in folder.open_runs())}
        with Lease(*members) as lease:
            for folder in stacks:  # first: a kill between these writes must not resume without the histories
                folder.resume_points.clear()
            for path in members:
                RunWriter(path, lease).archive_metrics()
            for path in paths:
                RunWriter(path, lease).set_state(states.PLANNED)
                (path / RUN).unlink()
    runs = (run.model_copy(update={"state": states.PLANNED}) if run in reset else run for run in plan.runs)
    return replace(plan, runs=tuple(runs))


def move_damaged_runs(experiment: Path, log: Callable[[str], object]) -> set[str]:
    """Verify all files of an experiment's finished runs, and move the damaged runs to ``.archived``.

    The resume points of their stacks are removed, so that the runs are trained from the first step. A damaged
    ``heads.json``, which is not a result of training, is removed. Other experiments are not changed.

    Returns:
        The damaged runs of other experiments that the experiment reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a damaged run; then nothing is moved.
    """
    paths = sorted(experiment.glob(f"[!.]*/{STATUS}"))
    damaged: dict[str, str] = {}
    finished = 0
    for run in (RunDirectory(inside(experiment, path.parent.name)) for path in paths):
        damage, name = _damage(run), run.path.name
        finished += damage is not None or run.state in states.RESULTS
        if damage == HEADS:
            with leased(run.path) as writer:
                writer.remove_result(HEADS)
            log(f"{HEADS} of {name} is damaged and was removed; h2h ablate-heads {name} writes it anew")
        elif damage is not None:
            damaged[name] = damage
    if damaged:
        _archive(experiment, [experiment / name for name in damaged])
        names = listed([f"{name} ({damage})" for name, damage in damaged.items()], MAX_NAMES)
        log(f"{len(damaged)} of {finished} finished runs damaged: {names}; retraining")
    else:
        log(f"none of {finished} finished runs is damaged")
    reused: dict[str, str] = {}
    with suppress(HeadToHeadError):  # an unreadable plan is rewritten
        directory = ExperimentDirectory.read(experiment)
        for planned in directory.record.runs:
            if planned.reused_from and (path := planned.path(directory.path)).exists():
                damage = _damage(RunDirectory(path))
                if damage not in (None, HEADS):
                    reused[planned.reused_from] = damage
    if reused:
        names = listed([f"{name} ({damage})" for name, damage in reused.items()], MAX_NAMES)
        log(
            f"{len(reused)} reused runs of other experiments damaged: {names}; training in "
            f"'{experiment.name}' instead, the other experiments are not changed"
        )
    return set(reused)


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


def _damage(run: RunDirectory) -> str | None:
    """Return the first damaged or missing file of a run, or the error of an unreadable record.

    Returns ``HEADS`` if only this file is damaged, and None if no file is.
    """
    try:
        damages = run.damaged_files()
        if set(damages) == {HEADS}:
            return HEADS
        if not damages:
            run.record  # noqa: B018
        return next((f"{file} {damage}" for file, damage in damages.items()), None)
    except HeadToHeadError as error:
        return str(error)
