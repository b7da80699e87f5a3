"""Reproduction of a finished run: retrain its stack and compare weights and scores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from headtohead import files
from headtohead.config.versions import drift, plugins_of, recorded_config
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.execution.local import LocalLauncher
from headtohead.execution.scheduler import Machine, Watcher, run_stacks
from headtohead.plugins.registry import current
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.run import CHECKPOINT, RESULTS
from headtohead.storage.run_directory import RunDirectory, find_run, leased
from headtohead.storage.run_files import delete_run_files
from headtohead.storage.stack import STACKS, StackFolder, stack_folders
from headtohead.training import checkpoint

MACHINE_METRICS = "system/"
"""Prefix of metrics that measure the machine."""


@dataclass(frozen=True)
class Reproduction:
    """The result of a reproduction: bit-for-bit equality of weights and scores, and a summary."""

    equal: bool
    summary: str


def reproduce(run: Path | str, runs: Path, watcher: Watcher) -> Reproduction:
    """Retrain the run's stack in a separate folder and compare the run with the original.

    All members are trained, because rounding may depend on the number of members.

    Raises:
        HeadToHeadError: If the run is unknown or not DONE, or the record of its stack is missing.
    """
    path = find_run(run, runs)
    original = RunDirectory(path)
    original.require_done()
    if original.record.imported:
        raise HeadToHeadError(f"run '{path.name}' was imported, not trained; it cannot be reproduced")
    for name in (CHECKPOINT, RESULTS):
        original.verified(name)
    stack = _stack_of(path)
    for _, config, _ in stack.record.variants:
        recorded_config(config, current(), path.name)
    with _workspace(path.parent) as workspace:
        folder = _copy(stack, inside(workspace, path.name))
        machine = Machine(LocalLauncher(), stack.record.device, workers=1)
        stopped = run_stacks([folder], machine, watcher, folder.experiment)
        new = RunDirectory(folder.experiment / path.name)
        if stopped or new.state != states.DONE:
            reason = stopped or new.status.reason
            raise HeadToHeadError(f"the reproduction of '{path.name}' ended {new.state}: {reason}")
        return _compare(original, new)


@contextmanager
def _workspace(experiment: Path) -> Iterator[Path]:
    """Yield ``.reproduced`` in the experiment's folder; a temporary folder if that folder is read-only."""
    if os.access(experiment, os.W_OK):
        yield inside(experiment, ".reproduced")
    else:
        with files.scratch_folder() as folder:
            yield folder


def _stack_of(path: Path) -> StackFolder:
    run_hash = RunDirectory(path).record.run_hash
    for folder in stack_folders(path.parent):
        if any(member.run_hash == run_hash for member in folder.record.members):
            return folder
    raise HeadToHeadError(f"the record of the stack of '{path.name}' is missing; the run cannot be reproduced")


def _copy(stack: StackFolder, experiment: Path) -> StackFolder:
    """Lay out an untrained copy of the stack in another folder."""
    delete_run_files(experiment)
    record = replace(stack.record, cache=str(cache_root()), deaths=0, timeout_seconds=None)
    for member, run in zip(record.members, stack.runs(), strict=True):
        with leased(inside(experiment, member.directory)) as writer:
            writer.plan(run.record)
    folder = StackFolder(experiment / STACKS / record.id)
    if stack.initial_weights.exists():
        folder.path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(stack.initial_weights, folder.initial_weights)
    folder.write(record)
    return folder


def _compare(original: RunDirectory, new: RunDirectory) -> Reproduction:
    new_weights = checkpoint.load_weights(new.verified(CHECKPOINT))
    old_weights = checkpoint.load_weights(original.verified(CHECKPOINT), new_weights)
    distance = max(float((old_weights[name] - new_weights[name]).abs().max()) for name in old_weights)
    equal_weights = all(torch.equal(old_weights[name], new_weights[name]) for name in old_weights)
    before, after = (run.results.metrics if run.results else {} for run in (original, new))
    different = {
        name: (before[name], after.get(name))
        for name in before
        if not name.startswith(MACHINE_METRICS) and before[name] != after.get(name)
    }
    name = original.path.name
    if equal_weights and not different:
        return Reproduction(True, f"{name}: weights and scores are bit-for-bit equal")
    shown = ", ".join(f"{metric} {_number(a)} then, {_number(b)} now" for metric, (a, b) in different.items())
    summary = f"{name}: weights differ by at most {distance:.2g}; {shown or 'scores are equal'}"
    changed = ", ".join(_drift(original)) or "no recorded version"
    return Reproduction(False, f"{summary}; changed since: {changed}")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _drift(run: RunDirectory) -> list[str]:
    record = run.record
    config = recorded_config(record.config, current(), run.path.name)
    return list(drift(record.versions, record.sources, plugins_of(config, current())))
