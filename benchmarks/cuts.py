"""Cost of a run in stacks of one variant and of several variants.

    python benchmarks/cuts.py [--rounds 14]

The stacks alternate in one process with one thread. The table shows the median processor time per
step and member, in milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

import torch

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.planning.stacking import activations
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

SIZES = [
    (10, 1, 1, 40, 64, 300),
    (16, 2, 1, 32, 256, 600),
    (32, 2, 1, 64, 256, 600),
    (48, 4, 1, 96, 512, 2000),
    (64, 4, 2, 256, 512, 2000),
]
"""Width, heads, layers, feed-forward width, tokens per batch, sentences of the corpus."""

VARIANTS = list(itertools.product(("none", "sinusoidal", "alibi"), ("padding-causal", "causal")))
CUTS = [(1, 2), (1, 6), (1, 12), (6, 2), (6, 6)]
"""Numbers of variants and of seeds of a stack."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=14)
    options = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    heads = [f"{variants} × {seeds}" for variants, seeds in CUTS]
    print(f"| size | activations per member | {' | '.join(heads)} |")
    print(f"|---|---:|{'---:|' * len(CUTS)}")
    for size in SIZES:
        numbers, costs = measure(size, options.rounds)
        cells = " | ".join(f"{cost:.2f}" for cost in costs)
        name = "/".join(map(str, size[:4]))
        print(f"| {name}, {size[4]} tokens | {numbers:,} | {cells} |", flush=True)


def measure(size: tuple[int, ...], rounds: int) -> tuple[int, list[float]]:
    """Return the activations of a member, and the milliseconds per step and member in every stack."""
    width, heads, layers, d_ff, tokens, sentences = size
    model: dict[str, Any] = {"d_model": width, "heads": heads, "layers": layers, "d_ff": d_ff, "dropout": 0.0}
    train = {"steps": 10_000, "batch_tokens": tokens, "lr": 0.001}
    configs = [
        resolve(
            {
                "data": {"dataset": "toy-grammar", "size": sentences},
                "model": model,
                "train": train,
                "positional": positional,
                "masking": masking,
            },
            current(),
        )
        for positional, masking in VARIANTS
    ]
    data = prepare(configs[0].data, cache_root())
    stacks = []
    for variants, seeds in CUTS:
        members = [(config, seed) for config in configs[:variants] for seed in range(seeds)]
        own, numbers = zip(*members, strict=True)
        training = StackTraining(own[0], numbers, data, torch.device("cpu"), configs=own)
        stacks.append((training, iter(training._batches())))
    spent: list[list[float]] = [[] for _ in CUTS]
    for _ in range(rounds + 4):
        for times, (training, batches) in zip(spent, stacks, strict=True):
            batch = next(batches)
            began = time.process_time()
            training._step(batch)
            times.append((time.process_time() - began) / len(training.progress.members))
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    costs = [1e3 * statistics.median(times[4:]) for times in spent]
    return activations(configs[0], *words), costs


if __name__ == "__main__":
    main()
