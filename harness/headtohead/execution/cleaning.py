"""Find and remove what no experiment needs: archived, superseded and failed runs, reproductions and caches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from headtohead import ownership
from headtohead.errors import HeadToHeadError
from headtohead.files import unreadable
from headtohead.storage import states
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import EXPERIMENT, CopyError, ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock, observe
from headtohead.storage.paths import checked_path
from headtohead.storage.record import read_record
from headtohead.storage.run import RUN, STATUS, RunRecord
from headtohead.storage.run_files import delete_run_files, has_traces_of_experiment, run_files

Kind = Literal["archived", "superseded", "failed", "reproduced", "cache"]
REMOVED_STATES = states.FAILURES | {states.KILLED}
PREPARED = "prepared"
"""Folder of the cache that is rebuilt when it is needed."""

NEEDED = "nothing is removed, since it could name any run; restore it, or move its folder away"
"""Advice for a missing record."""

FOLDER_NEEDED = (
    "nothing is removed, since it could be an experiment that needs any run; make it readable, or move it out of the "
    "runs folder"
)
"""Advice for a folder that cannot be listed."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leftover:
    """A path that can be removed, and why.

    ``experiment`` is the folder whose runs must not be trained during the removal; None for caches.
    """

    kind: Kind
    path: Path
    reason: str
    experiment: Path | None


def find_leftovers(runs_root: Path, cache: Path) -> Iterator[Leftover]:
    """Yield what can be removed from a runs folder and the cache; nothing is removed.

    The kinds are: ``archived`` and ``reproduced``, folders of earlier and of repeated runs; ``superseded``, runs that
    no experiment plans or reuses; ``failed``, planned runs that failed or were killed; ``cache``, prepared data. An
    active run is never yielded. Experiments behind symbolic links and copies of experiments are not cleaned.

    Args:
        runs_root: Folder with one folder per experiment; without it, only the cache is searched.
        cache: Folder of prepared data.

    Raises:
        HeadToHeadError: If a record is missing or damaged, a link has no target, or a folder cannot be listed, since
            each could name any run; or if a path leads through a symbolic link. Errors are raised while the iterator
            advances.
    """
    yield from _leftovers_of_experiments(runs_root)
    if ownership.names_in_manifest(cache / PREPARED):
        yield Leftover("cache", cache / PREPARED, "rebuilt when it is needed", None)


def _leftovers_of_experiments(runs_root: Path) -> Iterator[Leftover]:
    """Yield what can be removed from a runs folder, of the kinds that `find_leftovers` describes.

    Raises:
        HeadToHeadError: If a record is missing or damaged, a link has no target, a folder cannot be listed, or a path
            leads through a symbolic link; while the iterator advances.
    """
    experiments = _experiments(runs_root)
    needed = _needed_runs(experiments)
    for experiment in experiments:
        folder = experiment.path
        if folder.is_symlink() or folder.name != experiment.name:
            continue
        yield from _hidden("archived", folder, ".archived", "moved by --fresh, --stale or --repair")
        yield from _hidden("reproduced", folder, ".reproduced", "trained by h2h reproduce")
        for path in run_directories(folder):
            if not run_files(path):
                continue
            for name in (RUN, STATUS):
                _require_file(path / name)
            read_record(RunRecord, path / RUN)
            status = observe(path)
            if path not in needed:
                if status.state not in states.ACTIVE:
                    yield Leftover("superseded", path, f"not in the plan, {status.state}", folder)
            elif status.state in REMOVED_STATES:
                reason = f"{status.state}: {status.reason}" if status.reason else status.state
                yield Leftover("failed", path, reason, folder)


def remove(leftovers: Sequence[Leftover]) -> None:
    """Remove the paths that can still be removed; runs can have changed since `find_leftovers`.

    Under the leases of the runs, each experiment is searched again, and what is no longer a leftover is skipped. Files
    that headtohead did not write stay.

    Args:
        leftovers: Those of `find_leftovers`, the leftovers of an experiment next to each other.

    Raises:
        HeadToHeadError: If a process trains one of the runs, or lays out stacks for too long; if a record is missing or
            damaged; or if a link has no target or a folder cannot be listed. Then the leftovers of the experiment with
            the error stay, and those of earlier experiments are removed already.
    """
    for experiment, group in groupby(leftovers, lambda leftover: leftover.experiment):
        removable = list(group)
        with ExitStack() as stack:
            if experiment is not None:
                runs = [item.path for item in removable if item.path.parent == experiment]
                stack.enter_context(layout_lock(experiment))
                stack.enter_context(Lease(*runs))
                present = _leftovers_of_experiments(experiment.parent)
                current = {(item.kind, item.path) for item in present}
                removable = [item for item in removable if (item.kind, item.path) in current]
            for leftover in removable:
                if leftover.kind == "cache":
                    ownership.remove(leftover.path, ownership.names_in_manifest(leftover.path))
                else:
                    delete_run_files(leftover.path)


def _experiments(runs_root: Path) -> list[ExperimentDirectory]:
    """Return all experiments of a runs folder, sorted by folder, including copies and those behind symbolic links.

    A copy is logged as a warning. Hidden folders and folders without traces of an experiment are skipped.

    Raises:
        HeadToHeadError: If the record of an experiment is missing, damaged or a symbolic link; or if any link has no
            target or any folder cannot be listed, since it could be an experiment.
    """
    experiments = []
    for folder in sorted(runs_root.glob("[!.]*")):
        if folder.is_symlink() and not folder.exists():  # on a disk that is not mounted
            raise HeadToHeadError(
                unreadable(folder, "the target of the link does not exist", FOLDER_NEEDED)
            )
        if not folder.is_dir():
            continue
        try:
            has_traces = has_traces_of_experiment(folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise HeadToHeadError(unreadable(folder, reason, FOLDER_NEEDED)) from error
        if not has_traces:
            continue
        _require_file(folder / EXPERIMENT)
        experiment = ExperimentDirectory.read_any(folder)
        try:
            experiment.refuse_copy()
        except CopyError as error:
            log.warning(error)
        experiments.append(experiment)
    return experiments


def _needed_runs(experiments: Sequence[ExperimentDirectory]) -> set[Path]:
    """Return the directories of all runs that experiments plan or reuse."""
    return {
        run.path(experiment.path) for experiment in experiments for run in experiment.record.runs
    }


def _require_file(record: Path) -> None:
    """Raise HeadToHeadError if a record is missing."""
    if not record.is_file():
        raise HeadToHeadError(unreadable(record, "no such file", NEEDED))


def _hidden(kind: Kind, experiment: Path, name: str, reason: str) -> Iterator[Leftover]:
    """Yield the folders in a hidden folder that contain files of runs and no active run."""
    for path in sorted((experiment / name).glob("*")):
        checked = checked_path(experiment, name, path.name)
        if run_files(checked) and not any(
            observe(run).state in states.ACTIVE for run in run_directories(checked)
        ):
            yield Leftover(kind, checked, reason, experiment)
