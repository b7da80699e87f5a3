"""Training a finished run again as it was trained, to see whether the same comes out."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from headtohead.config.versions import drift, plugins_of, refuse_unregistered
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import find_run
from headtohead.execution.local import LocalLauncher
from headtohead.execution.scheduler import Machine, Watcher, run_stacks
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.run_directory import RunDirectory, leased
from headtohead.storage.stack import STACKS, StackFolder, stack_folders
from headtohead.training import checkpoint

TIMES = ("system/",)
"""Metrics that measure the machine, not the run."""


@dataclass(frozen=True)
class Comparison:
    """A run and its repetition."""

    equal: bool
    words: str


def repeat(run: Path | str, runs: Path, watcher: Watcher) -> Comparison:
    """Train the run's whole stack again, in a folder of its own, and compare the run.

    How a stack's sums are rounded may depend on its width, so the other members are trained too.

    Raises:
        HeadToHeadError: If the run is unknown or not finished, or its stack's record is gone.
    """
    path = find_run(run, runs)
    original = RunDirectory(path)
    if original.state != states.DONE:
        raise HeadToHeadError(f"run '{path.name}' is {original.state}, not DONE; type h2h run first")
    if original.record.imported:
        raise HeadToHeadError(f"run '{path.name}' was imported, not trained: there is nothing to train again")
    stack = _stack_of(path)
    for _, config, _ in stack.record.variants:
        refuse_unregistered(RunConfig.model_validate(config), current(), path.name)
    folder = _copy(stack, inside(path.parent, ".reruns", path.name))
    stopped = run_stacks([folder], Machine(LocalLauncher(), stack.record.device, workers=1), watcher, folder.experiment)
    again = RunDirectory(folder.experiment / path.name)
    if stopped or again.state != states.DONE:
        reason = stopped or again.status.reason
        raise HeadToHeadError(f"the repetition of '{path.name}' ended {again.state}: {reason}")
    return _compare(original, again)


def _stack_of(path: Path) -> StackFolder:
    key = RunDirectory(path).record.key
    for folder in stack_folders(path.parent):
        if any(member.key == key for member in folder.record.members):
            return folder
    raise HeadToHeadError(f"the record of the stack of '{path.name}' is gone; it cannot be repeated")


def _copy(stack: StackFolder, experiment: Path) -> StackFolder:
    """Lay out the stack in a folder of its own, as if nothing had been trained."""
    shutil.rmtree(experiment, ignore_errors=True)
    record = replace(stack.record, cache=str(cache_root()), prepared="", deaths=0)
    for member, run in zip(record.members, stack.runs(), strict=True):
        with leased(inside(experiment, member.directory)) as writer:
            writer.plan(run.record)
    folder = StackFolder(experiment / STACKS / record.id)
    folder.write(record)
    return folder


def _compare(original: RunDirectory, again: RunDirectory) -> Comparison:
    old, _ = checkpoint.load(original.path / "checkpoint.safetensors")
    new, _ = checkpoint.load(again.path / "checkpoint.safetensors")
    distance = max(float((old[name] - new[name]).abs().max()) for name in old)
    bits = all(torch.equal(old[name], new[name]) for name in old)
    before, after = (run.results.metrics if run.results else {} for run in (original, again))
    different = {
        name: (before[name], after.get(name))
        for name in before
        if not name.startswith(TIMES) and before[name] != after.get(name)
    }
    name = original.path.name
    if bits and not different:
        return Comparison(True, f"{name}: equal to the last bit, weights and scores")
    changed = _drift(original)
    shown = ", ".join(f"{key} {a:.6g} then, {b:.6g} now" for key, (a, b) in different.items())
    words = f"{name}: weights differ by at most {distance:.2g}; {shown or 'scores are equal'}"
    since = ", ".join(changed) or "no recorded version"
    return Comparison(False, f"{words}; changed since: {since}")


def _drift(run: RunDirectory) -> list[str]:
    record = run.record
    config = RunConfig.model_validate(record.config)
    return list(drift(record.versions, record.sources, plugins_of(config, current())))
