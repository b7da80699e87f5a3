"""Damaged and stale runs of an experiment are moved away, so that the same command retrains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.execution.scheduler import move_to_archive
from headtohead.planning.plan import Plan
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock, refuse_busy
from headtohead.storage.paths import inside
from headtohead.storage.run import HEADS, STATUS
from headtohead.storage.run_directory import RunDirectory, RunWriter
from headtohead.storage.stack import stack_folders

SHOWN = 5
"""Number of damaged runs that a line lists."""


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
    runs = [RunDirectory(inside(experiment, path.parent.name)) for path in sorted(experiment.glob(f"[!.]*/{STATUS}"))]
    damages = {run.path.name: _damages(run) for run in runs}
    heads = [name for name, damage in damages.items() if set(damage) == {HEADS}]
    damaged = [name for name, damage in damages.items() if set(damage) - {HEADS}]
    if damaged or heads:
        with layout_lock(experiment), refuse_busy(), Lease(*(experiment / name for name in damaged + heads)) as lease:
            for name in heads:
                RunWriter(experiment / name, lease).remove_result(HEADS)
                log(f"{HEADS} of {name} is damaged and was removed; h2h ablate-heads {name} writes it anew")
            if damaged:
                _archive(experiment, damaged)
    finished = sum(1 for run in runs if damages[run.path.name] or run.state in states.RESULTS)
    if damaged:
        log(f"{len(damaged)} of {finished} finished runs damaged: {_listed(damages, damaged)}; retraining")
    else:
        log(f"none of {finished} finished runs is damaged")
    other = {reference: _damages(run) for reference, run in _reused(experiment).items()}
    reused = [reference for reference, damage in other.items() if set(damage) - {HEADS}]
    if reused:
        log(
            f"{len(reused)} reused runs of other experiments damaged: {_listed(other, reused)}; training in "
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
    own = [run.directory for run in stale if not run.reused_from]
    if own:
        paths = [inside(plan.directory, name) for name in own]
        with layout_lock(plan.directory), refuse_busy(), Lease(*paths):
            _archive(plan.directory, own)
    log(
        f"{len(stale)} finished {'run is' if len(stale) == 1 else 'runs are'} STALE; retraining"
        if stale
        else "no run is STALE"
    )
    return {run.reused_from for run in stale if run.reused_from}


def _archive(experiment: Path, runs: Sequence[str]) -> None:
    """Move runs to ``.archived`` and remove the resume points of their stacks; the caller holds their leases."""
    for folder in stack_folders(experiment):
        if any(member.directory in runs for member in folder.record.members):
            folder.resume_points.clear()
    move_to_archive(experiment, [experiment / name for name in runs])


def _listed(damages: Mapping[str, Mapping[str, str]], damaged: Sequence[str]) -> str:
    """Return the names of the first damaged runs, each with its first damaged file."""
    first = [(name, next(iter(damages[name].items()))) for name in damaged[:SHOWN]]
    more = f", and {len(damaged) - SHOWN} more" if len(damaged) > SHOWN else ""
    return ", ".join(f"{name} ({f'{file} {damage}'.strip()})" for name, (file, damage) in first) + more


def _damages(run: RunDirectory) -> dict[str, str]:
    """Return the damage of each damaged or missing file of a run; of an unreadable record, the error."""
    try:
        damages = run.damaged_files()
        if not damages:
            run.record  # noqa: B018
        return damages
    except HeadToHeadError as error:
        return {"": str(error)}


def _reused(experiment: Path) -> dict[str, RunDirectory]:
    """Return the reused runs of other experiments by reference; none if the plan is unreadable, as it is rewritten."""
    try:
        directory = ExperimentDirectory.read(experiment)
    except HeadToHeadError:
        return {}
    return {
        run.reused_from: RunDirectory(path)
        for run in directory.record.runs
        if run.reused_from and (path := directory.run_path(run)).exists()
    }
