"""The GPU paths: first whether they are right, then how fast they are. One call, one table.

    python benchmarks/gpu.py [--out docs/tables/gpu.md]

1. Logits and gradients of a stack on the GPU in float64 and float32 against the CPU in float64.
2. A few steps of training in float32 against the CPU; bfloat16 within its own tolerance; the same
   of a stack of unlike runs (3 rates × 3 encodings × 2 masks × 2 fills).
3. Step times of stacks of 1 to 128 in float32 and bfloat16, runs per second against one alone, and
   model FLOP/s against the measured rate of a large matrix product; of 36 unlike runs beside 36
   alike.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from plain import Size
from stacks import Pairs, batch_of

from headtohead.experiment.resolve import resolve
from headtohead.model.counting import count
from headtohead.plugins import current
from headtohead.training.loop import StackTraining

SIZES = [
    Size("quickstart", 32, 2, 1, 64, 106, 157, 64, 8, 8),
    Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 128, 10, 10),
]
MEMBERS = (1, 8, 32, 128)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    faults = check(device)
    ceiling = {kind: product_rate(device, kind) for kind in (torch.float32, torch.bfloat16)}
    lines = [
        f"{torch.cuda.get_device_name()}; torch {torch.__version__}; median of 20; "
        "`python benchmarks/gpu.py`",
        "",
        *faults,
        "",
        f"Measured 8192³ product: float32 {ceiling[torch.float32] / 1e12:.0f}, "
        f"bfloat16 {ceiling[torch.bfloat16] / 1e12:.0f} TFLOP/s",
        "",
        "| size | precision | members | ms a step | runs per second against one alone | "
        "TFLOP/s | of the product |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        for precision in ("float32", "bfloat16"):
            lines += rows(size, precision, device, ceiling)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    return int(any("WRONG" in line for line in faults))


UNLIKE = [
    {"train": {"lr": lr}, "positional": positional, "masking": masking, "model": {"fill": fill}}
    for lr in (5e-4, 1e-3, 2e-3)
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", {"decoder": "causal", "encoder": "none", "cross": "padding"})
    for fill in ("-inf", "-1e9")
]
"""Runs of one shape that differ in rates, encodings, masks and fills."""


def training(
    size: Size, members: int, precision: str, device: torch.device,
    unlike: list[dict[str, Any]] | None = None,
) -> StackTraining:  # fmt: skip
    configs = [
        resolve(
            {
                **own,
                "model": {"d_model": size.d_model, "heads": size.heads, "layers": size.layers,
                          "d_ff": size.d_ff, "dropout": 0.0, **own.get("model", {})},
                "train": {"steps": 10**6, "schedule": "constant", "precision": precision,
                          **own.get("train", {})},
            },
            current(),
        )
        for own in (unlike or [{}] * members)
    ]  # fmt: skip
    data: Any = Pairs(size, *batch_of(size))
    return StackTraining(configs[0], range(1, members + 1), data, device, configs=configs)


def step_of(one: StackTraining, size: Size) -> Callable[[], None]:
    rows_ = torch.arange(size.rows).expand(one.model.members, -1)
    cut = one._cut(rows_, size.source_time, size.target_time)
    return lambda: one._step(cut)


def check(device: torch.device) -> list[str]:
    """Compare weights after five steps with those of the CPU in float64."""
    return [*_check(device, 3, None, "three members"),
            *_check(device, len(UNLIKE), UNLIKE, f"{len(UNLIKE)} unlike members")]  # fmt: skip


def _check(
    device: torch.device, members: int, unlike: list[dict[str, Any]] | None, words: str
) -> list[str]:
    size, cpu = SIZES[0], torch.device("cpu")
    reference = training(size, members, "float64", cpu, unlike)
    step = step_of(reference, size)
    for _ in range(5):
        step()
    found = []
    for precision, tolerance in (("float64", 1e-9), ("float32", 1e-3), ("bfloat16", 5e-2)):
        other = training(size, members, precision, device, unlike)
        step = step_of(other, size)
        for _ in range(5):
            step()
        away = max(
            float((a.double().cpu() - b).norm() / b.norm().clamp(min=1e-12))
            for a, b in zip(other.parameters, reference.parameters, strict=True)
            if b.abs().max() > 1e-3
        )
        losses = (other.loss_sums.cpu() - reference.loss_sums).abs().max() / 5
        verdict = "right" if float(losses) <= tolerance else "WRONG"
        found.append(
            f"- {precision} on the GPU against float64 on the CPU, five steps of {words}: "
            f"loss differs by at most {float(losses):.2g}, weights by {away:.2g} relative: "
            f"{verdict}"
        )
    return found


def product_rate(device: torch.device, kind: torch.dtype) -> float:
    a, b = (torch.randn(8192, 8192, device=device, dtype=kind) for _ in range(2))
    return 2 * 8192**3 / timed(lambda: torch.mm(a, b), 10)


def rows(
    size: Size, precision: str, device: torch.device, ceiling: dict[torch.dtype, float]
) -> list[str]:
    found, alone = [], 0.0
    for members in MEMBERS:
        one = training(size, members, precision, device)
        counts = count(one.config, size.source_words, size.target_words, size.source_time,
                       size.target_time)  # fmt: skip
        seconds = timed(step_of(one, size), 20)
        alone = alone or seconds
        work = 3 * counts.flops_per_token * size.target_time * size.rows * members / seconds
        kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
        found.append(
            f"| {size.name} | {precision} | {members} | {seconds * 1000:.2f} | "
            f"{members * alone / seconds:.1f} | {work / 1e12:.2f} | {work / ceiling[kind]:.1%} |"
        )
        del one
        torch.cuda.empty_cache()
    alike, mixed = (
        timed(step_of(training(size, len(UNLIKE), precision, device, unlike), size), 20)
        for unlike in (None, UNLIKE)
    )
    found.append(
        f"| {size.name} | {precision} | {len(UNLIKE)} unlike | {mixed * 1000:.2f} | "
        f"{len(UNLIKE) * alone / mixed:.1f} | {mixed / alike:.2f} times as many alike | |"
    )
    return found


def timed(work: Callable[[], Any], repeats: int) -> float:
    for _ in range(3):
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
