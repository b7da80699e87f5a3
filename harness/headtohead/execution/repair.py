"""Runs that are trained again: all (``--fresh``), failed (``--retry``), damaged (``--repair``) and STALE runs, and
incomplete runs of changed plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from headtohead.config.labels import listed
from headtohead.errors import HeadToHeadError
from headtohead.execution.scheduler import stacks_of
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.storage import states
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock
from headtohead.storage.metrics import counted
from headtohead.storage.paths import checked_path
from headtohead.storage.record import read_record
from headtohead.storage.run import HEADS, RUN, STATUS, RunRecord, stored_status
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased, now
from headtohead.storage.stack import STACKS, stack_folders

MAX_NAMES = 5
"""Number of damaged runs that a line lists."""


def archive_runs(experiment: Path) -> None:
    """Move all run directories and stacks of an experiment to ``.archived``, for ``--fresh``.

    Without a run directory, nothing is moved.

    Raises:
        HeadToHeadError: If another process trains one of the runs, or lays out stacks for too long; if a run, a stack
            or ``.archived`` is or has a symbolic link; or if the record of a stack is damaged. Then nothing is moved.
    """
    if paths := run_directories(experiment):
        _archive(experiment, paths, stacks=True)


def reset_runs(plan: Plan, log: Callable[[str], object], *, retry: bool) -> Plan:
    """Reset runs of a plan to PLANNED, and return the plan with these states.

    These are the selected runs that are incomplete and have changed plugins and, with ``retry``, the failed ones.
    Reused runs of other experiments are not reset. Runs over their time limit continue from their resume point, unless
    their plugins have changed or another run of their stack begins anew. The others begin anew: such a run has no
    ``run.json``; the scheduler writes it anew by the present code. The resume points of their stacks are removed. The
    histories of all members that are not finished are archived, so these begin at step 0 too, but keep their states.
    Without such runs, nothing happens. A kill can leave only some of the runs reset.

    Args:
        plan: The plan, which is not changed.
        log: Receives a line about the incomplete runs, if there are any.
        retry: Whether failed runs are reset.

    Raises:
        HeadToHeadError: If another process trains one of the runs or lays out stacks for too long, a run directory or
            a stack has a symbolic link, or a record is damaged; then nothing is changed.
        LeaseLost: If another process takes over a run meanwhile.
    """
    own_runs = [run for run in plan.selected if not run.reused_from]
    failed = [run for run in own_runs if retry and run.state in states.FAILURES]
    timed_out = [run for run in failed if run.state == states.TIMEOUT and not run.changed_plugins]
    incomplete = [run for run in own_runs if run.changed_plugins and run.state not in states.FINAL]
    anew = [*incomplete, *(run for run in failed if run not in timed_out)]
    if not anew and not timed_out:
        return plan
    if incomplete:
        changes: set[str] = set()
        for run in incomplete:
            changes.update(run.changed_plugins)
        number = counted(len(incomplete), "incomplete run")
        log(f"from step 0, with all runs of their stacks: {number} ({', '.join(sorted(changes))})")
    # First: the runs of a stack with a resume point are those without a final state.
    _continue(_checked_paths(plan, timed_out))
    if anew:
        _begin_anew(plan.directory, {run.run_hash for run in anew}, _checked_paths(plan, anew))
    runs = []
    for run in plan.runs:
        is_reset = run in anew or run in timed_out
        runs.append(run.model_copy(update={"state": states.PLANNED}) if is_reset else run)
    return replace(plan, runs=tuple(runs))


def _checked_paths(plan: Plan, runs: Sequence[PlannedRun]) -> list[Path]:
    """Return the directories of runs; raises as `checked_path` if one has a symbolic link."""
    return [checked_path(plan.directory, run.directory, tree=True) for run in runs]


def _continue(paths: Collection[Path]) -> None:
    """Reset runs over their time limit to PLANNED; their record, histories and resume point stay."""
    with Lease(*paths) as lease:
        for path in paths:
            RunWriter(path, lease).set_state(states.PLANNED)


def _begin_anew(experiment: Path, run_hashes: Set[str], paths: Sequence[Path]) -> None:
    """Reset runs to PLANNED without a record, and let all members of their stacks that are not done begin anew.

    Args:
        experiment: The experiment's folder.
        run_hashes: The hashes of the runs to reset.
        paths: Their directories.

    Raises:
        HeadToHeadError: If another process trains one of the runs or lays out stacks for too long, a stack has a
            symbolic link, or a record is damaged; then nothing is changed.
        LeaseLost: If another process takes over a run meanwhile.
    """
    with layout_lock(experiment):
        stacks = stacks_of(experiment, run_hashes)
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
                (path / RUN).unlink(missing_ok=True)


@dataclass
class Damage:
    """The damaged runs of an experiment.

    Attributes:
        experiment: The experiment's folder.
        finished: Number of finished runs.
        results: The damage of each damaged finished run, by directory.
        unreadable: The damage of each run without a result whose record is unreadable, by directory.
        heads: Directories of runs of which only ``heads.json`` is damaged, which is not a result of training.
        reused: The damage of each damaged run that the experiment reuses, as ``<experiment>/<directory>``.
    """

    experiment: Path
    finished: int = 0
    results: dict[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    reused: dict[str, str] = field(default_factory=dict)

    @property
    def references(self) -> set[str]:
        """All damaged runs as ``<experiment>/<directory>``."""
        directories = [*self.results, *self.unreadable, *self.heads]
        damaged = {f"{self.experiment.name}/{name}" for name in directories}
        return damaged | self.reused.keys()


def find_damage(experiment: Path) -> Damage:
    """Return the damage of an experiment's runs and of the runs that it reuses, from files and hashes.

    A damaged run is in one group: ``heads`` if only ``heads.json`` is damaged, else ``results`` if it is finished, else
    ``unreadable``. A run with an unreadable status counts as finished; run directories without a status are skipped.
    ``heads.json`` of reused runs is not checked, and no reused run if ``experiment.json`` is missing or damaged.
    Nothing is changed.

    Raises:
        HeadToHeadError: If a run directory of the experiment is a symbolic link. Damage is never raised.
    """
    damage = Damage(experiment, reused=_damaged_reused_runs(experiment))
    for status_file in sorted(experiment.glob(f"[!.]*/{STATUS}")):
        name = status_file.parent.name
        run = RunDirectory(checked_path(experiment, name))
        is_finished = _is_finished(run)
        if is_finished:
            damage.finished += 1
        damage_by_file = _damage_by_file(run)
        if not damage_by_file:
            continue
        first_damage = next(iter(damage_by_file.values()))
        if damage_by_file.keys() == {HEADS}:  # which training does not write
            damage.heads.append(name)
        elif is_finished:
            damage.results[name] = first_damage
        else:
            damage.unreadable[name] = first_damage
    return damage


def repair(damage: Damage, log: Callable[[str], object]) -> None:
    """Move the damaged runs of an experiment to ``.archived``, so that they are trained again from the first step.

    The resume points of their stacks are removed, so their other members that are not done begin anew. If only the
    ``heads.json`` of a run is damaged, that file is removed, and the run stays. Other experiments are not changed.

    Args:
        damage: From `find_damage`.
        log: Receives lines about what is damaged and what follows; one line also without damage.

    Raises:
        HeadToHeadError: If another process writes a damaged run, or lays out stacks for too long; if a stack or
            ``.archived`` has a symbolic link; or if the record of a stack is damaged. Then no run is moved, but files
            ``heads.json`` may have been removed.
        LeaseLost: If another process takes over a run while its ``heads.json`` is removed.
    """
    for name in damage.heads:
        with leased(damage.experiment / name) as writer:
            writer.remove_result(HEADS)
        log(f"{HEADS} of {name} is damaged and was removed; h2h ablate-heads {name} writes it anew")
    directories = [*damage.results, *damage.unreadable]
    if directories:
        _archive(damage.experiment, [damage.experiment / name for name in directories])
    if damage.results:
        number = f"{len(damage.results)} of {damage.finished} finished runs"
        log(f"{number} damaged: {_named(damage.results)}; retraining")
    else:
        log(f"none of {damage.finished} finished runs is damaged")
    if damage.unreadable:
        number = counted(len(damage.unreadable), "run")
        log(
            f"damaged records of {number} without a result: {_named(damage.unreadable)}; retraining"
        )
    if damage.reused:
        log(
            f"{counted(len(damage.reused), 'reused run')} of other experiments damaged: {_named(damage.reused)}; "
            f"training in '{damage.experiment.name}' instead, the other experiments are not changed"
        )


def _damaged_reused_runs(experiment: Path) -> dict[str, str]:
    """Return the damage of each damaged run of other experiments that the stored plan reuses, by ``reused_from``.

    Empty without a readable ``experiment.json``. Runs that no longer exist, and those of which only ``heads.json`` is
    damaged, are left out. A reference that leaves the runs folder, or leads through a symbolic link, is a damage.
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
        damage_by_file = _damage_by_file(RunDirectory(path)) if path.exists() else {}
        if damage_by_file.keys() - {HEADS}:
            damaged[planned.reused_from] = next(iter(damage_by_file.values()))
    return damaged


def _named(damages: Mapping[str, str]) -> str:
    """Return the names of damaged runs, each with its damage."""
    return listed([f"{name} ({damage})" for name, damage in damages.items()], MAX_NAMES)


def move_stale_runs(plan: Plan, log: Callable[[str], object]) -> set[str]:
    """Move the selected STALE runs of a plan's own experiment to ``.archived``, and return the reused STALE runs.

    The moved runs are trained again. The resume points of their stacks are removed. STALE runs of other experiments,
    which the plan reuses, are not moved. ``log`` receives one line with the number of both kinds together, also if it
    is 0. The plan is not changed.

    Returns:
        The STALE runs of other experiments that the plan reuses, as ``<experiment>/<directory>``.

    Raises:
        HeadToHeadError: If another process writes a STALE run, or lays out stacks for too long; if such a run, a stack
            or ``.archived`` is or has a symbolic link; or if the record of a stack is damaged. Then nothing is moved.
    """
    stale = [run for run in plan.selected if run.stale]
    paths = [checked_path(plan.directory, run.directory) for run in stale if not run.reused_from]
    if paths:
        _archive(plan.directory, paths)
    if stale:
        log(f"{counted(len(stale), 'STALE run')}; retraining")
    else:
        log("no run is STALE")
    return {run.reused_from for run in stale if run.reused_from}


def _archive(experiment: Path, runs: Collection[Path], *, stacks: bool = False) -> None:
    """Move run directories of an experiment to a new folder in ``.archived``.

    The resume points of their stacks are removed, so their other members that are not finished begin at step 0 too.

    Args:
        experiment: The experiment's folder.
        runs: The run directories; those that do not exist are skipped.
        stacks: Whether to move the folder of all stacks too.

    Raises:
        HeadToHeadError: If another process writes one of the runs, or lays out stacks for too long; if ``.archived`` or
            a stack has a symbolic link; or if the record of a stack is damaged. Then nothing is changed.
    """
    names = {run.name for run in runs}
    with layout_lock(experiment), Lease(*runs):
        archive = checked_path(experiment, ".archived", now().replace(":", ""))
        stacks_of_runs = []
        for folder in stack_folders(experiment):
            if any(member.directory in names for member in folder.record.members):
                stacks_of_runs.append(folder)
        # Nothing is changed before this line, since all of the above can fail.
        archive.mkdir(parents=True)
        for folder in stacks_of_runs:
            folder.resume_points.clear()
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


def _damage_by_file(run: RunDirectory) -> dict[str, str]:
    """Return what is wrong with each damaged or missing file of a run, by name; empty if there is none.

    A text is the name of the file and its damage. If ``run.json`` or ``status.json`` is unreadable, or a file is a
    symbolic link, the only damage is that of ``run.json``, and its text is the message of the error, which is not
    raised. A missing ``run.json`` is no damage of a run without a result: it is removed before the run is planned anew.
    """
    try:
        damage_by_file = run.damaged_files()
        if not damage_by_file:
            read_record(RunRecord, run.path / RUN)
    except HeadToHeadError as error:
        return {RUN: str(error)}
    return {file: f"{file} {damage}" for file, damage in damage_by_file.items()}
