"""Benchmark of stack sizes on this machine. Results are cached beside the prepared data."""

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
from headtohead.planning.costs import DataSizes, flops_per_core
from headtohead.planning.plan import Plan, PlannedRun
from headtohead.planning.stacking import (
    MAX_MEMBERS,
    STACK_SIZES_FILE,
    load_stack_sizes,
    machine_name,
    measured_sizes,
    processors,
    shape_hash,
)
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage import exits
from headtohead.storage.objects import load_plugins, worker_plugins

log = logging.getLogger(__name__)

BENCHMARK_FRACTION = 0.02
"""Maximum time of a benchmark as a fraction of the expected training time of a shape."""

MAX_SECONDS = 30.0
"""Maximum time of a benchmark, which shows no progress."""

MIN_SECONDS = 10.0
"""Shapes with less time for a benchmark use an estimate, which is deterministic.

The stack size may affect rounding, which long training amplifies.
"""


def stack_sizes(plan: Plan, runs: Sequence[PlannedRun], device: str, cache: Path) -> dict[str, int]:
    """Return the best number of members by hash of the shape; benchmark shapes that train long enough."""
    registry, runs_by_shape = current(), dict[str, list[PlannedRun]]()
    for run in runs:
        runs_by_shape.setdefault(shape(plan.variant_of(run).config, registry), []).append(run)
    known = load_stack_sizes(cache, device)
    if not processors(device):
        return known  # the GPUs are in other machines
    for name, members in runs_by_shape.items():
        if shape_hash(name) in known or len(members) <= processors(device):
            continue
        seconds = min(MAX_SECONDS, BENCHMARK_FRACTION * _expected(plan, members, device))
        if seconds >= MIN_SECONDS:
            # Sizes above the number of runs are measured too, since larger experiments use the cached result.
            measured = _measure(plan, members[0], device, cache, seconds)
            if measured:
                known = _store(cache, device, shape_hash(name), measured)
    return known


def _store(cache: Path, device: str, name: str, members: int) -> dict[str, int]:
    sizes = measured_sizes(cache)
    own = sizes.setdefault(machine_name(device), {})
    own[name] = members
    cache.mkdir(parents=True, exist_ok=True)
    files.write_json(cache / STACK_SIZES_FILE, sizes)
    return own


def _expected(plan: Plan, runs: Sequence[PlannedRun], device: str) -> float:
    """Return a rough estimate of the training time of the runs in seconds."""
    variant = plan.variant_of(runs[0])
    flops = variant.training_flops(DataSizes.from_data(plan.data_of(runs[0])))
    return len(runs) * flops / (flops_per_core(variant.config.model.d_model) * processors("cpu"))


def _measure(plan: Plan, run: PlannedRun, device: str, cache: Path, seconds: float) -> int | None:
    """Return the best number of members; log a failed benchmark and return None.

    The benchmark runs in a separate process, which frees its memory.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    receiving, sending = context.Pipe(duplex=False)
    config = plan.variant_of(run).config.model_dump(mode="json")
    process = context.Process(
        target=_time, args=(sending, config, str(cache), worker_plugins(), device, MAX_MEMBERS[device], seconds)
    )
    with hidden_main():
        process.start()
    sending.close()
    try:
        result: int | str = receiving.recv()
    except EOFError:
        process.join()
        result = f"its process ended with {exits.exit_name(process.exitcode or 0)}"
    process.join()
    if isinstance(result, int):
        return result
    log.warning("stack size of %s is estimated: its benchmark failed (%s)", run.variant, result)
    return None


def _time(
    sending: Connection,
    config: Mapping[str, object],
    cache: str,
    plugins: WorkerPlugins,
    device: str,
    most: int,
    seconds: float,
) -> None:
    """Entry point of the benchmark process."""
    import torch

    from headtohead.training import selftest
    from headtohead.training.memory import keep_freed_memory
    from headtohead.training.sizing import best_stack_size, time_sizes

    result: int | str
    try:
        load_plugins(plugins)
        torch.set_num_threads(1)
        keep_freed_memory()
        chosen = RunConfig.model_validate(config)
        data = prepare(chosen.data, Path(cache))
        torch_device = torch.device(device)
        result = best_stack_size(
            time_sizes(
                chosen,
                data,
                torch_device,
                most,
                seconds,
                lambda name: selftest.unverified(name, Path(cache), torch_device),
            )
        )
    except Exception as error:  # the parent logs it; training raises the same error with a traceback
        result = " ".join(f"{type(error).__name__}: {error}".split())
    sending.send(result)
    sending.close()
