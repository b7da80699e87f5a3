"""Runs that are trained again: all (``--fresh``), failed (``--retry``), damaged (``--repair``) and STALE runs, and
incomplete runs of changed plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
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
    """Reset runs of a plan that begin anew to PLANNED, and return the plan with these states.

    These are the selected runs of the experiment that are incomplete and have changed plugins and, with ``retry``, the
    failed ones. Runs of other experiments are not reset. A reset run has no ``run.json``; the scheduler writes it
    anew by the present code. The resume points of their stacks are removed and the histories of all open members
    archived, so these begin at step 0 too, but keep their states. The plan is returned unchanged if there are no such
    runs; else the returned runs keep ``changed_plugins``.

    A kill can leave only some of the runs reset.

    Args:
        plan: The plan, which is not changed.
        log: Receives a line about the incomplete runs, if there are any.
        retry: Whether failed runs begin anew.

    Raises:
        HeadToHeadError: If another process trains one of the runs or lays out stacks for too long, or a run directory
            has a symbolic link; then nothing is changed. Also if the record of a stack is damaged.
        LeaseLost: If another process takes over a run meanwhile.
        FileNotFoundError: If a run to reset has no ``run.json``.
    """
    own_runs = [run for run in plan.selected if not run.reused_from]
    incomplete = [run for run in own_runs if run.changed_plugins and run.state not in states.FINAL]
    reset = list(incomplete)
    if retry:
        reset += [run for run in own_runs if run.state in states.FAILURES]
    if not reset:
        return plan
    if incomplete:
        changes: set[str] = set()
        for run in incomplete:
            changes.update(run.changed_plugins)
        number = counted(len(incomplete), "incomplete run")
        log(f"from step 0, with all runs of their stacks: {number} ({', '.join(sorted(changes))})")
    paths = [inside(plan.directory, run.directory, tree=True) for run in reset]
    with layout_lock(plan.directory):
        stacks = stacks_of(plan.directory, {run.run_hash for run in reset})
        members = set(paths)
        for folder in stacks:
            members.update(run.path for run in folder.open_runs())
        with Lease(*members) as lease:
            # First: a kill between these writes must not resume without the histories.
            for folder in stacks:
                folder.resume_points.clear()
            for path in members:
                RunWriter(path, lease).archive_metrics()
            for path in paths:
                RunWriter(path, lease).set_state(states.PLANNED)
                (path / RUN).unlink()
    runs = []
    for run in plan.runs:
        runs.append(run.model_copy(update={"state": states.PLANNED}) if run in reset else run)
    return replace(plan, runs=tuple(runs))


@dataclass
class Damage:
    """The damaged runs of an experiment.

    Attributes:
        experiment: The experiment's folder.
        finished: Number of finished runs.
        results: The damage of each damaged finished run, by directory.
        records: The damage of each run without a result whose record is unreadable, by directory.
        heads: Directories of runs of which only ``heads.json`` is damaged, which is not a result of training.
        reused: The damage of each damaged run that the experiment reuses, as ``<experiment>/<directory>``.
    """

    experiment: Path
    finished: int = 0
    results: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    reused: dict[str, str] = field(default_factory=dict)

    @property
    def references(self) -> set[str]:
        """All damaged runs as ``<experiment>/<directory>``."""
        directories = [*self.results, *self.records, *self.heads]
        damaged = {f"{self.experiment.name}/{name}" for name in directories}
        return damaged | self.reused.keys()


def find_damage(experiment: Path) -> Damage:
    """Return the damage of an experiment's runs and of the runs that it reuses, from all their files and hashes.

    Nothing is changed. A run with an unreadable status counts as finished; run directories without a status are
    skipped. Reused runs are skipped if ``experiment.json`` is missing or damaged.

    Raises:
        HeadToHeadError: If a run directory is a symbolic link.
    """
    damages = Damage(experiment, reused=_damaged_reused_runs(experiment))
    for status in sorted(experiment.glob(f"[!.]*/{STATUS}")):
        name = status.parent.name
        run = RunDirectory(inside(experiment, name))
        is_finished = _is_finished(run)
        if is_finished:
            damages.finished += 1
        damage = _damage(run)
        if damage is None:
            continue
        if damage == HEADS:
            damages.heads.append(name)
        elif is_finished:
            damages.results[name] = damage
        else:
            damages.records[name] = damage
    return damages


def repair(damage: Damage, log: Callable[[str], object]) -> None:
    """Move the damaged runs of an experiment to ``.archived``, so that they are trained again from the first step.

    The resume points of their stacks are removed. A damaged ``heads.json`` alone is removed, and its run stays. Other
    experiments are not changed.

    Args:
        damage: From `find_damage`.
        log: Receives lines about what is damaged and what follows; one line also without damage.

    Raises:
        HeadToHeadError: If another process writes a damaged run; then no run is moved, but files ``heads.json`` may
            have been removed.
    """
    for name in damage.heads:
        with leased(damage.experiment / name) as writer:
            writer.remove_result(HEADS)
        log(f"{HEADS} of {name} is damaged and was removed; h2h ablate-heads {name} writes it anew")
    directories = [*damage.results, *damage.records]
    if directories:
        _archive(damage.experiment, [damage.experiment / name for name in directories])
    if damage.results:
        number = f"{len(damage.results)} of {damage.finished} finished runs"
        log(f"{number} damaged: {_named(damage.results)}; retraining")
    else:
        log(f"none of {damage.finished} finished runs is damaged")
    if damage.records:
        number = counted(len(damage.records), "run")
        log(f"damaged records of {number} without a result: {_named(damage.records)}; retraining")
    if damage.reused:
        log(
            f"{len(damage.reused)} reused runs of other experiments damaged: {_named(damage.reused)}; training in "
            f"'{damage.experiment.name}' instead, the other experiments are not changed"
        )


def _damaged_reused_runs(experiment: Path) -> dict[str, str]:
    """Return the damage of each damaged run of other experiments that the stored plan reuses, by ``reused_from``.

    Empty without a readable ``experiment.json``. Runs that no longer exist, and those of which only ``heads.json`` is
    damaged, are left out. A reference that leaves the runs folder is a damage.
    """
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
    """Move the selected STALE runs of a plan's own experiment to ``.archived``; return those of other experiments.

    The moved runs are trained again. The resume points of their stacks are removed. STALE runs of other experiments,
    which the plan reuses, are not moved. ``log`` receives one line with the number of both kinds together, also if it
    is 0. The plan is not changed.

    Returns:
        The STALE runs of other experiments that the plan reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a STALE run; then nothing is moved.
    """
    stale = [run for run in plan.selected if run.stale]
    paths = [inside(plan.directory, run.directory) for run in stale if not run.reused_from]
    if paths:
        _archive(plan.directory, paths)
    if stale:
        log(f"{counted(len(stale), 'STALE run')}; retraining")
    else:
        log("no run is STALE")
    return {run.reused_from for run in stale if run.reused_from}


def _archive(experiment: Path, runs: Collection[Path], *, stacks: bool = False) -> None:
    """Move run directories of an experiment to a new folder in ``.archived``.

    The resume points of their stacks are removed, so the other open members of these stacks begin at step 0 too.

    Args:
        experiment: The experiment's folder.
        runs: The run directories; those that do not exist are skipped.
        stacks: Whether to move the folder of all stacks too.

    Raises:
        HeadToHeadError: If another process writes one of the runs, or lays out stacks for too long; then nothing is
            changed. Also if the record of a stack is damaged.
    """
    names = {run.name for run in runs}
    with layout_lock(experiment), Lease(*runs):
        for folder in stack_folders(experiment):
            if any(member.directory in names for member in folder.record.members):
                folder.resume_points.clear()
        archive = inside(experiment, ".archived", now().replace(":", ""))
        archive.mkdir(parents=True)
        moved = list(runs)
        if stacks:
            moved.append(experiment / STACKS)
        for path in moved:
            if path.exists():
                path.rename(archive / path.name)


def _is_finished(run: RunDirectory) -> bool:
    """Return whether a run has a result; a run with an unreadable status may have one."""
    try:
        return stored_status(run.path).state in states.RESULTS
    except HeadToHeadError:
        return True


def _damage(run: RunDirectory) -> str | None:
    """Return the first damaged or missing file of a run with what is wrong, or the error of an unreadable record.

    It is ``HEADS`` alone if only this file is damaged, and None if no file is. A run without a result may have no
    ``run.json``, which is removed before the run is planned anew. Errors of the record are returned, not raised.
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
