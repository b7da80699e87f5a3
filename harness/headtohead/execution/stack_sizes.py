"""Sizes of stacks that were measured on this machine, remembered beside the prepared data."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from headtohead import files
from headtohead.data import prepare
from headtohead.execution.local import PRELOAD, hidden_main
from headtohead.model.members import shape
from headtohead.planning.costs import FLOPS_PER_CORE, DataSizes
from headtohead.planning.plan import Plan, PlannedRun
from headtohead.planning.stacking import MOST, SIZES, digest, load_stack_sizes, machine, measured_sizes, processors
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage import exits
from headtohead.storage.objects import load_plugins, worker_plugins

log = logging.getLogger(__name__)

SHARE = 0.02
"""Of the time that a shape is expected to train, what measuring it may take."""

MOST_SECONDS = 30.0
"""The longest that a shape is measured: nothing is shown meanwhile."""

LEAST_SECONDS = 10.0
"""A shape for which that is less is not measured: an estimate will do, and always says the same.

How stacks are cut may decide how sums are rounded, which a long training amplifies.
"""


def stack_sizes(plan: Plan, runs: Sequence[PlannedRun], device: str, cache: Path) -> dict[str, int]:
    """Return how many members pay, by the digest of the shape, measured where it is worth it."""
    registry, found = current(), dict[str, list[PlannedRun]]()
    for run in runs:
        found.setdefault(shape(plan.by_slug[run.variant].config, registry), []).append(run)
    known = load_stack_sizes(cache, device)
    if not processors(device):
        return known  # the GPUs are elsewhere
    for name, members in found.items():
        if digest(name) in known or len(members) <= processors(device):
            continue
        seconds = min(MOST_SECONDS, SHARE * _expected(plan, members, device))
        if seconds >= LEAST_SECONDS:
            # Larger than this study can fill, too: what is remembered serves larger ones.
            measured = _measure(plan, members[0], device, cache, seconds)
            if measured:
                known = _remember(cache, device, digest(name), measured)
    return known


def _remember(cache: Path, device: str, name: str, members: int) -> dict[str, int]:
    kept = measured_sizes(cache)
    own = kept.setdefault(machine(device), {})
    own[name] = members
    cache.mkdir(parents=True, exist_ok=True)
    files.write_json(cache / SIZES, kept)
    return own


def _expected(plan: Plan, runs: Sequence[PlannedRun], device: str) -> float:
    """Return the seconds that the runs take, roughly, as before any run is finished."""
    one = plan.by_slug[runs[0].variant]
    flops = one.training_flops(DataSizes.of(plan.data_of(one.slug)))
    return len(runs) * flops / (FLOPS_PER_CORE * processors("cpu"))


def _measure(plan: Plan, run: PlannedRun, device: str, cache: Path, seconds: float) -> int | None:
    """Return the members that pay, or None if the benchmark failed, which is logged.

    It runs in a process of its own, which gives back the memory.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    receiving, sending = context.Pipe(duplex=False)
    config = plan.by_slug[run.variant].config.model_dump(mode="json")
    process = context.Process(
        target=_time, args=(sending, config, str(cache), worker_plugins(), device, MOST[device], seconds)
    )
    with hidden_main():
        process.start()
    sending.close()
    try:
        found: int | str = receiving.recv()
    except EOFError:
        process.join()
        found = f"its process ended with {exits.exit_name(process.exitcode or 0)}"
    process.join()
    if isinstance(found, int):
        return found
    log.warning("stack size of %s is estimated: its benchmark failed (%s)", run.variant, found)
    return None


def _time(
    sending: Connection,
    config: Mapping[str, object],
    cache: str,
    sent: WorkerPlugins,
    device: str,
    most: int,
    seconds: float,
) -> None:
    """Entry of the process that measures."""
    import torch

    from headtohead.training import selftest
    from headtohead.training.memory import keep_freed_memory
    from headtohead.training.sizing import paying, time_sizes

    found: int | str
    try:
        load_plugins(sent)
        torch.set_num_threads(1)
        keep_freed_memory()
        chosen = RunConfig.model_validate(config)
        data = prepare(chosen.data, Path(cache))
        place = torch.device(device)
        found = paying(
            time_sizes(chosen, data, place, most, seconds, lambda name: selftest.unverified(name, Path(cache), place))
        )
    except Exception as error:  # the parent logs it; the training itself shows it with its trace
        found = " ".join(f"{type(error).__name__}: {error}".split())
    sending.send(found)
    sending.close()
