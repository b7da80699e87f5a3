"""Cost of dropout in a training step: per-member masks, torch's dropout, and no dropout.

    python benchmarks/dropout.py [--rounds 40] [--threads 1]

Three trainings of the same stack alternate in one process; the table shows medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.model.dropout import Dropout
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining

SIZES = [(10, 1, 1, 40, 64, 300), (32, 2, 1, 64, 256, 600), (128, 4, 2, 512, 1024, 3000)]
"""Width, heads, layers, feed-forward width, tokens per batch, sentences of the corpus."""


def by_torch(self: Dropout, x: Tensor) -> Tensor:
    """Apply torch's dropout, with random numbers that depend on the stack."""
    assert isinstance(self.rate, float)
    return functional.dropout(x, self.rate) if self.is_active else x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}, float32;")
    print(f"rate 0.1 at every site, {options.rounds} rounds\n")
    print("| size | members | none, ms | per member, relative | torch, relative |")
    print("|---|---:|---:|---:|---:|")
    for size in SIZES:
        for members in (1, 16) if size[0] < 100 else (1, 4):
            none, own, whole = measure(size, members, options.rounds)
            name = "/".join(map(str, size[:4]))
            shares = f"{own / none:.2f} | {whole / none:.2f}"
            print(f"| {name} | {members} | {none * 1e3:.1f} | {shares} |", flush=True)


def measure(size: tuple[int, ...], members: int, rounds: int) -> list[float]:
    """Return the seconds of a step without dropout, with per-member dropout and with torch's dropout."""
    own = Dropout.forward
    sides = [
        (training(size, members, 0.0), own),
        (training(size, members, 0.1), own),
        (training(size, members, 0.1), by_torch),
    ]
    steps = [(stack, iter(stack._batches()), forward) for stack, forward in sides]
    seconds: list[list[float]] = [[] for _ in sides]
    try:
        for _ in range(rounds):
            for spent, (stack, batches, forward) in zip(seconds, steps, strict=True):
                Dropout.forward = forward  # type: ignore[method-assign]
                cut = next(batches)
                began = time.process_time()
                stack._step(cut)
                spent.append(time.process_time() - began)
    finally:
        Dropout.forward = own  # type: ignore[method-assign]
    return [statistics.median(spent[len(spent) // 5 :]) for spent in seconds]


def training(size: tuple[int, ...], members: int, rate: float) -> StackTraining:
    width, heads, layers, d_ff, tokens, sentences = size
    model: dict[str, Any] = {"d_model": width, "heads": heads, "layers": layers, "d_ff": d_ff, "dropout": rate}
    config = resolve(
        {
            "data": {"dataset": "toy-grammar", "size": sentences},
            "model": model,
            "train": {"steps": 10_000, "batch_tokens": tokens, "lr": 0.001},
        },
        current(),
    )
    data = prepare(config.data, cache_root())
    return StackTraining(config, range(1, members + 1), data, torch.device("cpu"))


if __name__ == "__main__":
    main()
