"""The estimated time of the remaining runs of a plan on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from headtohead.planning.plan import Plan
from headtohead.plugins.launcher import cpu_cores
from headtohead.storage.metrics import counted
from headtohead.storage.progress import duration

MAX_FLOPS_PER_CORE = 50e9
"""FLOPs per second and core in float32, evaluation included, that models of width 128 and more reached.

The committed reports have 5 to 10 GFLOP/s for width 32, 18 for 48 and 20 to 30 for 64: roughly 6 · (width / 32)².
"""


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of the remaining runs on this machine, and the basis of the estimate.

    ``most_seconds`` includes the runs of all later looks.
    """

    seconds: float
    basis: str
    most_seconds: float


@dataclass(frozen=True)
class Speed:
    """FLOPs per second of the machine for each variant, and where the numbers are from."""

    flops_per_second: Mapping[str, float]
    basis: str


def estimate_time(plan: Plan) -> Estimate:
    """Return the estimated time of the remaining runs of a plan and, with ``tune``, of those of its sweep.

    The speed is measured from the plan's finished runs; without any, it is a rough number for this machine's cores,
    also if it has a GPU. The sweep has a speed of its own, from its own finished runs. Runs that failed, or that are
    running now, are not remaining (`Plan.remaining`).
    """
    flops = {}
    for slug, variant in plan.by_slug.items():
        flops[slug] = variant.training_flops(plan.prepared[variant.data_hash])
    speed = _measured_speed(plan, flops) or _rough_speed(plan)
    seconds_by_variant = {slug: flops[slug] / speed.flops_per_second[slug] for slug in flops}
    seconds = sum(seconds_by_variant[run.variant] for run in plan.remaining)
    most_seconds = seconds
    if plan.looks is not None:
        later_seeds = plan.looks.seeds[-1] - len(plan.design.seeds)
        for variant in plan.trained_variants:
            most_seconds += later_seeds * seconds_by_variant[variant.slug]
    if plan.tuning is None or not plan.tuning.plan.remaining:
        return Estimate(seconds, speed.basis, most_seconds)
    sweep = estimate_time(plan.tuning.plan).seconds
    basis = f"{speed.basis}, with the tuning runs"
    return Estimate(seconds + sweep, basis, most_seconds + sweep)


def time_line(plan: Plan) -> str:
    """Return the estimated time of the remaining runs, and of all looks if further ones are possible, as a line."""
    estimate = estimate_time(plan)
    line = f"time: {duration(estimate.seconds)}"
    if estimate.most_seconds > estimate.seconds:
        line += f" for this look, {duration(estimate.most_seconds)} for all looks"
    return f"{line} ({estimate.basis})"


def _measured_speed(plan: Plan, flops: Mapping[str, float]) -> Speed | None:
    """Return the speed at which the remaining runs would train, from the median of the finished runs.

    A finished run without a recorded execution, time or FLOPs is left out; None if none is left. All variants get the
    same number.

    Args:
        plan: The plan.
        flops: FLOPs of training a run, by the slug of every variant.
    """
    speeds = []
    threads = []
    for finished in plan.finished:
        execution = finished.execution
        seconds = finished.metrics.get("system/wall_seconds")
        run_flops = flops[finished.run.variant]
        if execution is not None and seconds and run_flops:
            speeds.append(run_flops * len(execution.stack) / seconds)
            threads.append(execution.threads)
    if not speeds:
        return None
    threads_per_process = max(1, round(statistics.median(threads)))
    # Every process gets a stack if there are enough runs.
    processes = max(1, min(len(plan.remaining), cpu_cores() // threads_per_process))
    flops_per_second = processes * statistics.median(speeds)
    basis = f"from {counted(len(speeds), 'finished run')}, {processes} in parallel"
    return Speed(dict.fromkeys(flops, flops_per_second), basis)


def _rough_speed(plan: Plan) -> Speed:
    """Return the speed that models of these widths had on other machines."""
    cores = cpu_cores()
    flops_per_second = {}
    for slug, variant in plan.by_slug.items():
        per_core = min(MAX_FLOPS_PER_CORE, 6e9 * (variant.config.model.d_model / 32) ** 2)
        flops_per_second[slug] = cores * per_core
    return Speed(flops_per_second, f"rough: no finished run, if {cores} cores are idle")
