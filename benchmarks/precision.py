"""Training steps in bfloat16 and float32 on real batches of all lengths.

    python benchmarks/precision.py --file PAIRS [--members 1 6] [--steps 30] [--rounds 6] [--batch-tokens 2048]

Stacks of the same runs train in both precisions on the same batches, in alternating rounds. The first round is not
counted. Batches have equal lengths (`length_buckets: exact`) and therefore many shapes: oneDNN generates code for every
shape of a bfloat16 product that is new or forgotten. One thread, processor time; the ratios are of the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from length_buckets import CPU, Size, tatoeba
from stacks import machine

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.model.precision import describe_bfloat16
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

PRECISIONS = ("float32", "bfloat16")


class Side:
    """A stack that trains in one precision."""

    def __init__(self, size: Size, members: int, precision: str, steps: int, batch_tokens: int) -> None:
        changes = {"length_buckets": "exact", "precision": precision, "batch_tokens": batch_tokens}
        train: dict[str, Any] = {**size.config["train"], **changes}
        config = resolve({**size.config, "train": train}, current())
        self.training = StackTraining(config, range(1, members + 1), prepare(config.data, cache_root()), CPU)
        self.batches, self.steps = self.training._batches(), steps

    def round(self) -> tuple[float, float]:
        """Train some steps; return the milliseconds per step and the mean loss of the first run."""
        before, began = float(self.training.loss_sums[0]), time.process_time()
        for _ in range(self.steps):
            self.training._step(next(self.batches))
        seconds = time.process_time() - began
        return 1000 * seconds / self.steps, (float(self.training.loss_sums[0]) - before) / self.steps


def row(size: Size, members: int, steps: int, rounds: int, batch_tokens: int) -> str:
    """Return the row of a size and a number of members."""
    sides = [Side(size, members, precision, steps, batch_tokens) for precision in PRECISIONS]
    results = [[side.round() for side in sides] for _ in range(rounds + 1)][1:]
    exact, rounded = ([each[index][0] for each in results] for index in (0, 1))
    ratios = [before / after for before, after in zip(exact, rounded, strict=True)]
    (_, last), (_, last_rounded) = results[-1]
    return (
        f"| {size.name} | {members} | {statistics.median(exact):.1f} | {statistics.median(rounded):.1f} | "
        f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {last:.4f} | {last_rounded:.4f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, required=True, help="Tatoeba pairs")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 6])
    parser.add_argument("--steps", type=int, default=30, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens of a batch per run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"{machine(CPU)}; {describe_bfloat16()}; torch {torch.__version__}, 1 thread\n")
    print("| size | runs | float32, ms | bfloat16, ms | times as fast | range | loss, float32 | loss, bfloat16 |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for size in tatoeba(options.file, options.pairs, epochs=100):
        for members in options.members:
            print(row(size, members, options.steps, options.rounds, options.batch_tokens), flush=True)


if __name__ == "__main__":
    main()
