"""The GPU paths: first whether they are right, then how fast they are. One call, one table.

    python benchmarks/gpu.py [--out docs/internals/tables/gpu.md] [--compile]

1. Eight steps of a stack on the GPU, eager, replayed as CUDA graphs and (``--compile``) compiled,
   in float64, float32 and bfloat16, against the CPU in float64; the same of a stack of unlike runs
   (3 rates × 3 encodings × 2 masks × 2 fills). A fallback to eager is a fault.
2. Step times of stacks of 1 to 128 by backend and precision, runs per second against one alone, and
   model FLOP/s against the measured rate of a large matrix product; of 36 unlike runs beside 36
   alike.
3. Runs per second of the best stack beside 2, 4 and 8 processes that share the GPU, each with one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from plain import Size
from stacks import Pairs, batch_of

from headtohead.config.resolve import resolve
from headtohead.model.counting import count
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining

SIZES = [
    Size("quickstart", 32, 2, 1, 64, 106, 157, 64, 8, 8),
    Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 128, 10, 10),
]
MEMBERS = (1, 8, 32, 128)
STEPS = 8
SECONDS = 4.0
"""How long processes that share the GPU are watched."""


BACKENDS = ("eager", "cuda-graphs")
PROCESSES = (2, 4, 8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="torch.compile too, minutes a shape")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    backends = (*BACKENDS, "compile") if options.compile else BACKENDS
    faults = check(device, backends)
    ceiling = {kind: product_rate(device, kind) for kind in (torch.float32, torch.bfloat16)}
    lines = [
        f"{torch.cuda.get_device_name()}; torch {torch.__version__}; median of 20; `python benchmarks/gpu.py`",
        "",
        *faults,
        "",
        f"Measured 8192³ product: float32 {ceiling[torch.float32] / 1e12:.0f}, "
        f"bfloat16 {ceiling[torch.bfloat16] / 1e12:.0f} TFLOP/s",
        "",
        "| size | precision | backend | members | ms a step | runs per second against one "
        "alone and eager | TFLOP/s | of the product |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        for precision in ("float32", "bfloat16"):
            lines += rows(size, precision, device, ceiling, backends)
    lines += ["", *shared(device)]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    return int(any("WRONG" in line for line in faults))


UNLIKE = [
    {"train": {"lr": lr}, "positional": positional, "masking": masking, "model": {"mask_value": mask_value}}
    for lr in (5e-4, 1e-3, 2e-3)
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", {"decoder": "causal", "encoder": "none", "cross": "padding"})
    for mask_value in ("-inf", "-1e9")
]
"""Runs of one shape that differ in rates, encodings, masks and fills."""


def training(
    size: Size,
    members: int,
    precision: str,
    device: torch.device,
    unlike: list[dict[str, Any]] | None = None,
    backend: str = "eager",
    said: list[str] | None = None,
) -> StackTraining:
    configs = [
        resolve(
            {
                **own,
                "model": {
                    "d_model": size.d_model,
                    "heads": size.heads,
                    "layers": size.layers,
                    "d_ff": size.d_ff,
                    "dropout": 0.0,
                    **own.get("model", {}),
                },
                "train": {
                    "steps": 10**6,
                    "schedule": "constant",
                    "precision": precision,
                    "backend": backend,
                    **own.get("train", {}),
                },
            },
            current(),
        )
        for own in (unlike or [{}] * members)
    ]
    data: Any = Pairs(size, *batch_of(size))
    return StackTraining(
        configs[0],
        range(1, members + 1),
        data,
        device,
        configs=configs,
        on_fall_back=(said if said is not None else []).append,
    )


def step_of(one: StackTraining, size: Size) -> Callable[[], None]:
    rows_ = torch.arange(size.rows).expand(one.model.members, -1)
    cut = one._cut(rows_, size.source_time, size.target_time)
    return lambda: one._step(cut)


def check(device: torch.device, backends: Sequence[str]) -> list[str]:
    """Compare losses and weights after eight steps with those of the CPU in float64."""
    return [
        *_check(device, backends, 3, None, "three members"),
        *_check(device, backends, len(UNLIKE), UNLIKE, f"{len(UNLIKE)} unlike members"),
    ]


def _check(
    device: torch.device, backends: Sequence[str], members: int, unlike: list[dict[str, Any]] | None, words: str
) -> list[str]:
    size, cpu = SIZES[0], torch.device("cpu")
    reference = training(size, members, "float64", cpu, unlike)
    step = step_of(reference, size)
    for _ in range(STEPS):
        step()
    found = []
    for precision, tolerance in (("float64", 1e-8), ("float32", 1e-3), ("bfloat16", 5e-2)):
        for backend in backends:
            said: list[str] = []
            other = training(size, members, precision, device, unlike, backend, said)
            step = step_of(other, size)
            for _ in range(STEPS):
                step()
            away = max(
                float((a.detach().double().cpu() - b.detach()).norm() / b.norm().clamp(min=1e-12))
                for a, b in zip(other.parameters, reference.parameters, strict=True)
                if b.abs().max() > 1e-3
            )
            losses = (other.loss_sums.cpu() - reference.loss_sums).abs().max() / STEPS
            right = float(losses) <= tolerance and not said
            found.append(
                f"- {precision}, {backend}, on the GPU against float64 on the CPU, {STEPS} steps "
                f"of {words}: loss differs by at most {float(losses):.2g}, weights by {away:.2g} "
                f"relative: {'right' if right else 'WRONG'}{''.join(f'; {one}' for one in said)}"
            )
    return found


def product_rate(device: torch.device, kind: torch.dtype) -> float:
    a, b = (torch.randn(8192, 8192, device=device, dtype=kind) for _ in range(2))
    return 2 * 8192**3 / timed(lambda: torch.mm(a, b), 10)


def rows(
    size: Size, precision: str, device: torch.device, ceiling: dict[torch.dtype, float], backends: Sequence[str]
) -> list[str]:
    found, alone = [], 0.0
    for members in MEMBERS:
        for backend in backends:
            one = training(size, members, precision, device, backend=backend)
            counts = count(one.config, size.source_words, size.target_words, size.source_time, size.target_time)
            seconds = timed(step_of(one, size), 20)
            alone = alone or seconds
            work = 3 * counts.flops_per_token * size.target_time * size.rows * members / seconds
            kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
            found.append(
                f"| {size.name} | {precision} | {backend} | {members} | {seconds * 1000:.2f} | "
                f"{members * alone / seconds:.1f} | {work / 1e12:.2f} | "
                f"{work / ceiling[kind]:.1%} |"
            )
            del one
            torch.cuda.empty_cache()
    alike, mixed = (
        timed(step_of(training(size, len(UNLIKE), precision, device, own, "cuda-graphs"), size), 20)
        for own in (None, UNLIKE)
    )
    found.append(
        f"| {size.name} | {precision} | cuda-graphs | {len(UNLIKE)} unlike | {mixed * 1000:.2f} | "
        f"{len(UNLIKE) * alone / mixed:.1f} | {mixed / alike:.2f} times as many alike | |"
    )
    return found


def shared(device: torch.device) -> list[str]:
    """Return steps of runs per second: one after the other, in processes that share, stacked."""
    size = SIZES[1]
    lines = [
        f"{size.name} in float32, steps of single runs per second, by backend:",
        "",
        "| way | eager | replayed |",
        "|---|---:|---:|",
    ]
    for processes in (1, *PROCESSES):
        each = [_in_processes(processes, backend) for backend in BACKENDS]
        name = "one after the other" if processes == 1 else f"{processes} processes share the GPU"
        lines.append(f"| {name} | {each[0]:.0f} | {each[1]:.0f} |")
    for members in MEMBERS[1:]:
        each = []
        for backend in BACKENDS:
            one = training(size, members, "float32", device, backend=backend)
            each.append(members / timed(step_of(one, size), 20))
            del one
            torch.cuda.empty_cache()
        lines.append(f"| stack of {members} | {each[0]:.0f} | {each[1]:.0f} |")
    return lines


def _in_processes(processes: int, backend: str) -> float:
    """Return the steps per second of all processes together, each with a run of its own."""
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(processes), context.Queue()
    own = [context.Process(target=_one_run, args=(backend, ready, rates)) for _ in range(processes)]
    for one in own:
        one.start()
    total = sum(rates.get(timeout=300) for _ in own)
    for one in own:
        one.join()
    return total


def _one_run(backend: str, ready: Any, rates: Any) -> None:
    size, device = SIZES[1], torch.device("cuda")
    step = step_of(training(size, 1, "float32", device, backend=backend), size)
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    ready.wait()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        for _ in range(20):
            step()
        torch.cuda.synchronize()
        steps += 20
    rates.put(steps / (time.perf_counter() - began))


def timed(work: Callable[[], Any], repeats: int) -> float:
    for _ in range(6):  # eager and captured, verified, and then what is measured
        work()
    seconds = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
