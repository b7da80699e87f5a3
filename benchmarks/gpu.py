"""Correctness and speed of training on a GPU.

    python benchmarks/gpu.py [--out benchmarks/results/gpu.md] [--compile]

1. Eight steps of a stack on the GPU, eager, replayed as CUDA graphs and (``--compile``) compiled,
   in float64, float32 and bfloat16, against the CPU in float64; also for a stack of unlike runs
   (3 learning rates × 3 encodings × 2 masks × 2 mask values). A fallback to eager is a failure.
2. Step times of stacks of 1 to 128 members by backend and precision: runs per second relative to a
   single eager run, and model FLOP/s relative to the measured rate of a large matrix product. Also
   of 36 unlike runs relative to 36 runs that differ in the seed only.
3. Runs per second of stacks, and of 2, 4 and 8 processes that share the GPU, each with a single run.
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
from stacks import stack_training, step_of

from headtohead.model.counting import count

SIZES = [
    Size("quickstart", 32, 2, 1, 64, 106, 157, 64, 8, 8),
    Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 128, 10, 10),
]
MEMBERS = (1, 8, 32, 128)
STEPS = 8
SECONDS = 4.0
"""Duration of the measurement of processes that share the GPU."""


BACKENDS = ("eager", "cuda-graphs")
PROCESSES = (2, 4, 8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes minutes per shape")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch finds no GPU", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    backends = (*BACKENDS, "compile") if options.compile else BACKENDS
    checks = check(device, backends)
    ceiling = {kind: product_rate(device, kind) for kind in (torch.float32, torch.bfloat16)}
    lines = [
        f"{torch.cuda.get_device_name()}; torch {torch.__version__}; median of 20; `python benchmarks/gpu.py`",
        "",
        *checks,
        "",
        f"Measured 8192³ product: float32 {ceiling[torch.float32] / 1e12:.0f}, "
        f"bfloat16 {ceiling[torch.bfloat16] / 1e12:.0f} TFLOP/s",
        "",
        "| size | precision | backend | members | ms per step | runs per second relative to a single "
        "eager run | TFLOP/s | share of the product's rate |",
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
    return int(any("WRONG" in line for line in checks))


UNLIKE = [
    {"train": {"lr": lr}, "positional": positional, "masking": masking, "model": {"mask_value": mask_value}}
    for lr in (5e-4, 1e-3, 2e-3)
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", {"decoder": "causal", "encoder": "none", "cross": "padding"})
    for mask_value in ("-inf", "-1e9")
]
"""Runs of equal shape with different learning rates, encodings, masks and mask values."""


def check(device: torch.device, backends: Sequence[str]) -> list[str]:
    """Compare losses and weights after eight steps with those of the CPU in float64."""
    return [
        *_check(device, backends, 3, [{}], "three members"),
        *_check(device, backends, len(UNLIKE), UNLIKE, f"{len(UNLIKE)} unlike members"),
    ]


def _check(
    device: torch.device, backends: Sequence[str], members: int, overrides: list[dict[str, Any]], stack: str
) -> list[str]:
    size = SIZES[0]
    train = {"precision": "float64", "backend": "eager"}
    reference = stack_training(size, members, torch.device("cpu"), overrides, train=train)
    step = step_of(reference, size)
    for _ in range(STEPS):
        step()
    lines = []
    for precision, tolerance in (("float64", 1e-8), ("float32", 1e-3), ("bfloat16", 5e-2)):
        for backend in backends:
            fallbacks: list[str] = []
            train = {"precision": precision, "backend": backend}
            other = stack_training(size, members, device, overrides, train=train, on_fall_back=fallbacks.append)
            step = step_of(other, size)
            for _ in range(STEPS):
                step()
            difference = max(
                float((a.detach().double().cpu() - b.detach()).norm() / b.norm().clamp(min=1e-12))
                for a, b in zip(other.parameters, reference.parameters, strict=True)
                if b.abs().max() > 1e-3
            )
            losses = (other.loss_sums.cpu() - reference.loss_sums).abs().max() / STEPS
            right = float(losses) <= tolerance and not fallbacks
            lines.append(
                f"- {precision}, {backend}, on the GPU against float64 on the CPU, {STEPS} steps "
                f"of {stack}: loss differs by at most {float(losses):.2g}, weights by {difference:.2g} "
                f"relative: {'right' if right else 'WRONG'}{''.join(f'; {reason}' for reason in fallbacks)}"
            )
    return lines


def product_rate(device: torch.device, kind: torch.dtype) -> float:
    a, b = (torch.randn(8192, 8192, device=device, dtype=kind) for _ in range(2))
    return 2 * 8192**3 / timed(lambda: torch.mm(a, b), 10)


def rows(
    size: Size, precision: str, device: torch.device, ceiling: dict[torch.dtype, float], backends: Sequence[str]
) -> list[str]:
    lines, alone = [], 0.0
    for members in MEMBERS:
        for backend in backends:
            training = stack_training(size, members, device, train={"precision": precision, "backend": backend})
            counts = count(training.config, size.source_words, size.target_words, size.source_time, size.target_time)
            seconds = timed(step_of(training, size), 20)
            alone = alone or seconds
            work = 3 * counts.flops_per_token * size.target_time * size.rows * members / seconds
            kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
            lines.append(
                f"| {size.name} | {precision} | {backend} | {members} | {seconds * 1000:.2f} | "
                f"{members * alone / seconds:.1f} | {work / 1e12:.2f} | "
                f"{work / ceiling[kind]:.1%} |"
            )
            del training
            torch.cuda.empty_cache()
    train = {"precision": precision, "backend": "cuda-graphs"}
    alike, unlike = (
        timed(step_of(stack_training(size, len(UNLIKE), device, overrides, train=train), size), 20)
        for overrides in ([{}], UNLIKE)
    )
    lines.append(
        f"| {size.name} | {precision} | cuda-graphs | {len(UNLIKE)} unlike | {unlike * 1000:.2f} | "
        f"{len(UNLIKE) * alone / unlike:.1f} | {unlike / alike:.2f} times the step time of as many alike | |"
    )
    return lines


def shared(device: torch.device) -> list[str]:
    """Return a table of steps per second: in sequence, in processes that share the GPU, and stacked."""
    size = SIZES[1]
    lines = [
        f"{size.name} in float32, steps of single runs per second, by backend:",
        "",
        "| arrangement | eager | replayed |",
        "|---|---:|---:|",
    ]
    for processes in (1, *PROCESSES):
        rates = [_in_processes(processes, backend) for backend in BACKENDS]
        name = "in sequence" if processes == 1 else f"{processes} processes share the GPU"
        lines.append(f"| {name} | {rates[0]:.0f} | {rates[1]:.0f} |")
    for members in MEMBERS[1:]:
        rates = []
        for backend in BACKENDS:
            training = stack_training(size, members, device, train={"precision": "float32", "backend": backend})
            rates.append(members / timed(step_of(training, size), 20))
            del training
            torch.cuda.empty_cache()
        lines.append(f"| stack of {members} | {rates[0]:.0f} | {rates[1]:.0f} |")
    return lines


def _in_processes(count: int, backend: str) -> float:
    """Return the steps per second of all processes together, each with a single run."""
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(count), context.Queue()
    processes = [context.Process(target=_single_run, args=(backend, ready, rates)) for _ in range(count)]
    for process in processes:
        process.start()
    total = sum(rates.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    return total


def _single_run(backend: str, ready: Any, rates: Any) -> None:
    size, device = SIZES[1], torch.device("cuda")
    step = step_of(stack_training(size, 1, device, train={"precision": "float32", "backend": backend}), size)
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
    for _ in range(6):  # eager steps, capture and verification come before the measurement
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
