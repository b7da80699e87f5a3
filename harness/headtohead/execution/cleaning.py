"""Find and remove what no experiment needs: archived, superseded and failed runs, and caches."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from headtohead.storage import states
from headtohead.storage.disk_usage import disk_usage
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.leases import Lease, layout_lock, observe, refuse_busy
from headtohead.storage.paths import inside
from headtohead.storage.records import EXPERIMENT, RUN

Kind = Literal["archived", "superseded", "failed", "cache"]
RUN_KINDS: tuple[Kind, ...] = ("archived", "superseded", "failed")
REMOVED_STATES = states.RETRYABLE | {states.KILLED}
CACHES = ("prepared",)
"""Folders of the cache that headtohead rebuilds when it needs them; downloads are not among them."""


@dataclass(frozen=True)
class Leftover:
    """A path that can be removed, and why.

    ``experiment`` is the folder whose runs must not be trained during the removal; None for caches.
    """

    kind: Kind
    path: Path
    reason: str
    size: int
    experiment: Path | None


def find_leftovers(runs_root: Path, cache: Path, kinds: Collection[str]) -> list[Leftover]:
    """Return what can be removed from a runs folder and the cache.

    archived: runs that ``--fresh``, ``--force`` or ``--repair`` moved to ``.archived``. superseded: runs that are
    neither in the plan of their experiment nor reused by another experiment. failed: planned runs without a result that
    ended as FAILED, OOM, TIMEOUT or KILLED. cache: prepared data.

    Raises:
        HeadToHeadError: If a record is damaged, since its runs could be needed.
    """
    folders = sorted(path.parent for path in runs_root.glob(f"*/{EXPERIMENT}"))
    experiments = [ExperimentDirectory.read(folder) for folder in folders]
    needed = {experiment.run_path(run) for experiment in experiments for run in experiment.record.runs}
    found: list[Leftover] = []
    for experiment in experiments:
        found += _archived(experiment.path)
        for record in sorted(experiment.path.glob(f"*/{RUN}")):
            path = inside(experiment.path, record.parent.name)
            status, state = observe(path)
            if path not in needed:
                if state not in states.ACTIVE:
                    found.append(_leftover("superseded", path, f"not in the plan, {state}", experiment.path))
            elif state in REMOVED_STATES:
                reason = f"{state}: {status.reason}" if status.reason else state
                found.append(_leftover("failed", path, reason, experiment.path))
    for name in CACHES:
        if (cache / name).is_dir():
            found.append(_leftover("cache", cache / name, "rebuilt when it is needed", None))
    return [leftover for leftover in found if leftover.kind in kinds]


def remove(leftovers: Sequence[Leftover]) -> None:
    """Remove the paths that can still be removed; runs can have changed since `find_leftovers`.

    Raises:
        HeadToHeadError: If a process trains one of the runs; then nothing of its experiment is removed.
    """
    for experiment, group in groupby(leftovers, lambda leftover: leftover.experiment):
        paths = [leftover.path for leftover in group]
        with ExitStack() as stack:
            if experiment is not None:
                runs = [path for path in paths if path.parent == experiment]
                stack.enter_context(layout_lock(experiment))
                stack.enter_context(refuse_busy())
                stack.enter_context(Lease(*runs))
                current = {found.path for found in find_leftovers(experiment.parent, experiment, RUN_KINDS)}
                paths = [path for path in paths if path in current]
            for path in paths:
                shutil.rmtree(path)


def _archived(experiment: Path) -> Iterator[Leftover]:
    for path in sorted(experiment.glob(".archived/*")):
        checked = inside(experiment, ".archived", path.name)
        yield _leftover("archived", checked, "moved by --fresh, --force or --repair", experiment)


def _leftover(kind: Kind, path: Path, reason: str, experiment: Path | None) -> Leftover:
    return Leftover(kind, path, reason, disk_usage(path).size, experiment)
