"""What stacking costs and brings: ratios only, both sides measured in turn in one process.

    python benchmarks/stacks.py [--device cuda] [--rounds 30] [--out FILE]

1. A stack of one against the same model in plain torch modules (plain.py): step times.
2. A stack of n against n runs one after the other, each a stack of one: runs per second.
3. A stack of unlike runs (3 encodings × 2 masks × 3 rates × 2 seeds) against one of as many that
   differ in their seeds alone: step times.

    python benchmarks/stacks.py --check

measures the first two at notebook 1's size, and ends with 1 where a ratio is beyond its limit.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from plain import PlainTraining, Size

from headtohead.config.resolve import resolve
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

SIZES = [
    Size("notebook 1", 10, 1, 1, 40, 40, 40, 20, 5, 5),
    Size("quickstart", 32, 2, 1, 64, 106, 157, 64, 8, 8),
    Size("tatoeba-heads", 64, 4, 2, 256, 3000, 3000, 128, 8, 8),
    Size("128/4/2/512", 128, 4, 2, 512, 8000, 8000, 128, 10, 10),
]


MOST_OF_ONE = 1.4
"""Times of a stack of one over plain modules' that are let through: 1.02 to 1.21 was measured, the
latter on a busy machine."""

LEAST_OF_SIXTEEN = 3.0
"""Runs per second of 16 stacked over 16 one by one that are asked for: 4.7 to 6 was measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--members", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    device = torch.device(options.device)
    if options.check:
        sys.exit(check(device, options.rounds))
    lines = [
        f"{machine(device)}; torch {torch.__version__}, {options.threads} thread(s), float32; "
        f"median of {options.rounds} rounds, both sides in turn; "
        f"`python benchmarks/stacks.py --device {options.device}`",
        "",
        "| size | plain modules, ms a step | stack of one / plain | "
        + " | ".join(f"{n} runs: stacked / one by one" for n in options.members)
        + f" | {len(UNLIKE)} unlike / alike, step |",
        "|---|---:|---:|" + "---:|" * (len(options.members) + 1),
    ]
    for size in SIZES:
        lines.append(row(size, device, options.rounds, options.members))
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def row(size: Size, device: torch.device, rounds: int, members: list[int]) -> str:
    source, target = batch_of(size)
    plain = PlainTraining(size, device)
    single = stack_step(size, 1, source, target, device)
    own = (source.to(device), target.to(device))
    times = alternate([lambda: plain.step(*own), single], device, rounds)
    cells = [f"{times[0] * 1000:.2f}", f"{times[1] / times[0]:.2f}"]
    for n in members:
        stacked = stack_step(size, n, source, target, device)
        one, many = alternate([single, stacked], device, max(5, rounds // 2))
        cells.append(f"{n * one / many:.1f} times the runs per second")
    if size.d_model <= LARGEST_UNLIKE:
        steps = [
            stack_step(size, len(UNLIKE), source, target, device),
            stack_step(size, len(UNLIKE), source, target, device, UNLIKE),
        ]
        alike, unlike = alternate(steps, device, max(5, rounds // 2))
        cells.append(f"{unlike / alike:.2f}")
    else:
        cells.append("–")
    return f"| {size.name} | " + " | ".join(cells) + " |"


def check(device: torch.device, rounds: int) -> int:
    """Print the two ratios that must not get worse; return 1 where one is."""
    size = SIZES[0]
    source, target = batch_of(size)
    plain = PlainTraining(size, device)
    own = (source.to(device), target.to(device))
    steps = [
        lambda: plain.step(*own),
        stack_step(size, 1, source, target, device),
        stack_step(size, 16, source, target, device),
    ]
    bare, one, many = alternate(steps, device, rounds)
    cost, gain = one / bare, 16 * one / many
    print(f"stack of one / plain modules: {cost:.2f} (at most {MOST_OF_ONE})")
    print(f"16 runs, stacked / one by one: {gain:.1f} (at least {LEAST_OF_SIXTEEN})")
    return int(cost > MOST_OF_ONE or gain < LEAST_OF_SIXTEEN)


def batch_of(size: Size) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids with lengths as in a bucket: none shorter than half."""
    generator = torch.Generator().manual_seed(1)
    sides = []
    for words, time_ in ((size.source_words, size.source_time), (size.target_words, size.target_time + 1)):
        ids = torch.randint(4, words, (size.rows, time_), generator=generator)
        lengths = torch.randint(max(2, time_ - 3), time_ + 1, (size.rows, 1), generator=generator)
        lengths[0] = time_
        sides.append(ids.masked_fill(torch.arange(time_) >= lengths, 0))
    return sides[0], sides[1]


class Words:
    """Stands for a vocabulary where only its size and its padding are asked for."""

    def __init__(self, size: int) -> None:
        self.size, self.pad = size, 0

    def __len__(self) -> int:
        return self.size


class Pairs:
    """Stands for prepared data that holds one batch."""

    def __init__(self, size: Size, source: torch.Tensor, target: torch.Tensor) -> None:
        self.source_vocabulary, self.target_vocabulary = (Words(size.source_words), Words(size.target_words))
        split = type("Split", (), {})()
        split.source = [row[row != 0].numpy() for row in source]
        split.target = [row[row != 0].numpy() for row in target]
        self.splits = {"train": split, "valid": split}
        self.record = {"longest": {"source": size.source_time, "target": size.target_time + 1}}


UNLIKE = [
    {"positional": positional, "masking": masking, "train": {"lr": lr}}
    for lr in (5e-4, 1e-3, 2e-3)
    for positional in ("sinusoidal", "rotary", "alibi")
    for masking in ("padding-causal", "causal")
    for _ in range(2)
]
"""What members of a stack may differ in, twice each: for two seeds."""

LARGEST_UNLIKE = 64
"""Widths beyond it are not stacked on a CPU, and take long to measure."""


def stack_step(
    size: Size,
    members: int,
    source: torch.Tensor,
    target: torch.Tensor,
    device: torch.device,
    unlike: Sequence[Mapping[str, Any]] = ({},),
) -> Callable[[], Any]:
    configs = [
        resolve(
            {
                "model": {
                    "d_model": size.d_model,
                    "heads": size.heads,
                    "layers": size.layers,
                    "d_ff": size.d_ff,
                    "dropout": 0.0,
                },
                **own,
                "train": {"steps": 10**6, "schedule": "constant", "lr": 1e-3, **own.get("train", {})},
            },
            current(),
        )
        for own in unlike
    ]
    training = StackTraining(
        configs[0],
        range(1, members + 1),
        Pairs(size, source, target),  # type: ignore[arg-type]
        device,
        configs=configs * (members // len(configs)),
    )
    rows = torch.arange(size.rows).expand(members, -1)
    cut = training._batch_spec(rows, size.source_time, size.target_time)
    return lambda: training._step(cut)


def alternate(steps: list[Callable[[], Any]], device: torch.device, rounds: int) -> list[float]:
    """Return the median seconds of each, measured in turn."""
    # One CPU thread is timed by the processor time it used: others on the machine do not count.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    repeats = []
    for step in steps:
        step()
        started = clock()
        step()
        synchronise(device)
        repeats.append(max(1, round(0.02 / (clock() - started))))
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for index, step in enumerate(steps):
            synchronise(device)
            started = clock()
            for _ in range(repeats[index]):
                step()
            synchronise(device)
            seconds[index].append((clock() - started) / repeats[index])
    return [statistics.median(values) for values in seconds]


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    path = Path("/proc/cpuinfo")
    if path.exists():
        models = [line.split(":")[1].strip() for line in path.read_text().splitlines() if line.startswith("model name")]
        name = f"{models[0]}, {len(models)} cores"
    return name


if __name__ == "__main__":
    main()
