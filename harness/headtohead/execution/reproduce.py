"""Reproduction of a finished run: retrain its stack and compare weights and scores."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from headtohead.config.entries import parsed_options, plugins_of
from headtohead.config.versions import drift
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.execution.local import LocalLauncher
from headtohead.execution.scheduler import Machine, lay_out, run_stacks, stacks_of
from headtohead.storage import states
from headtohead.storage.leases import Lease
from headtohead.storage.paths import checked_path
from headtohead.storage.run import CHECKPOINT, RESULTS
from headtohead.storage.run_directory import RunDirectory, RunWriter, find_run
from headtohead.storage.run_files import delete_run_files
from headtohead.storage.stack import StackFolder
from headtohead.training import checkpoint

MACHINE_METRICS = "system/"
"""Prefix of metrics that measure the machine."""


def reproduce(run: Path | str, runs: Path) -> tuple[bool, str]:
    """Retrain the run's stack in a separate folder and compare the run with the original.

    All members are trained, because rounding may depend on the number of members. The copy is in ``.reproduced`` of the
    experiment, where it stays and replaces an earlier one; for an experiment that cannot be written, in a temporary
    folder that is removed.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name.
        runs: The folder of run directories, for lookup by name.

    Returns:
        Whether weights and scores are bit-for-bit equal, and a summary of the comparison.

    Raises:
        HeadToHeadError: If the run is unknown, not DONE, imported or damaged; if the record of its stack, or a plugin,
            is missing; if its data have changed; if another process writes the copy; if ``.reproduced`` or a run is a
            symbolic link; if no worker can be started, or its disk is full; or if the copy does not end DONE.
    """
    path = find_run(run, runs)
    original = RunDirectory(path)
    original.require_done()
    if original.record.imported:
        raise HeadToHeadError(
            f"run '{path.name}' was imported, not trained; it cannot be reproduced"
        )
    for name in (CHECKPOINT, RESULTS):
        original.verified(name)
    stacks = stacks_of(path.parent, {original.record.run_hash})
    if not stacks:
        raise HeadToHeadError(
            f"the record of the stack of '{path.name}' is missing; the run cannot be reproduced"
        )
    for config in stacks[0].configs().values():
        parsed_options(config, path.name)
    with _workspace(path.parent) as workspace:
        folder = _copy(stacks[0], checked_path(workspace, path.name))
        machine = Machine(LocalLauncher(), folder.record.device, workers=1)
        stopped = run_stacks([folder], machine, folder.experiment)
        new = RunDirectory(folder.experiment / path.name)
        if stopped or new.state != states.DONE:
            reason = stopped or new.status.reason
            raise HeadToHeadError(f"the reproduction of '{path.name}' ended {new.state}: {reason}")
        return _compare(original, new)


@contextmanager
def _workspace(experiment: Path) -> Iterator[Path]:
    """Yield the folder of reproductions; for an experiment that cannot be written, a temporary one."""
    if os.access(experiment, os.W_OK):
        yield checked_path(experiment, ".reproduced")
        return
    with tempfile.TemporaryDirectory(prefix="h2h-") as folder:
        yield Path(folder)


def _copy(stack: StackFolder, experiment: Path) -> StackFolder:
    """Lay out an untrained copy of the stack in another folder."""
    delete_run_files(experiment)
    changes = {"cache": str(cache_root()), "deaths": 0, "timeout_seconds": None}
    record = stack.record.model_copy(update=changes)
    paths = [checked_path(experiment, member.directory) for member in record.members]
    with Lease(*paths) as lease:
        for path, run in zip(paths, stack.runs(), strict=True):
            RunWriter(path, lease).plan(run.record)
        return lay_out(experiment, record, lease)


def _compare(original: RunDirectory, new: RunDirectory) -> tuple[bool, str]:
    """Compare the weights and scores of a run with those of its repetition.

    Metrics of the machine, such as times, and metrics that only the repetition has are not compared. A metric that the
    repetition lacks is different.

    Returns:
        Whether all weights and scores are equal, and a line with the result. If they differ, the line has the largest
        difference of weights, the different scores, and the versions and sources that changed since.

    Raises:
        HeadToHeadError: If a result file of either run is missing or damaged, a weight is not finite, or their weights
            have other names, shapes or kinds of numbers; or, if they differ, the configuration of the run is invalid.
    """
    new_weights = checkpoint.load_weights(new.verified(CHECKPOINT))
    old_weights = checkpoint.load_weights(original.verified(CHECKPOINT), new_weights)
    distance = 0.0
    are_weights_equal = True
    for name, weights in old_weights.items():
        distance = max(distance, float((weights - new_weights[name]).abs().max()))
        are_weights_equal &= torch.equal(weights, new_weights[name])
    old_metrics = _metrics(original)
    new_metrics = _metrics(new)
    different = []
    for name, value in old_metrics.items():
        new_value = new_metrics.get(name)
        if not name.startswith(MACHINE_METRICS) and value != new_value:
            different.append(f"{name} {_number(value)} then, {_number(new_value)} now")
    name = original.path.name
    record = original.record
    if are_weights_equal and not different:
        return True, f"{name}: weights and scores are bit-for-bit equal"
    config = parsed_options(record.config, name)
    changed = ", ".join(drift(record.versions, record.sources, plugins_of(config)))
    scores = ", ".join(different) or "scores are equal"
    return False, (
        f"{name}: weights differ by at most {distance:.2g}; {scores}; changed since: "
        f"{changed or 'no recorded version'}"
    )


def _metrics(run: RunDirectory) -> Mapping[str, float | None]:
    return run.results.metrics if run.results else {}


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
