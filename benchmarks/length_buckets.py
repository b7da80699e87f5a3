"""Training time and validation loss with `length_buckets: exact` and `coarse`.

    python benchmarks/length_buckets.py [--file PAIRS] [--rounds 3] [--pairs 20000] [--epochs 1]

Both sides train the same model on the same pairs for the same number of epochs, with the same seeds. They alternate,
and the script compares their processor time. One thread; validation losses are means over the seeds, with the standard
deviation of their difference.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from stacks import machine

from headtohead.config.resolve import resolve
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.training.loop import Evaluation, StackTraining
from headtohead.training.memory import keep_freed_memory

KINDS = ("coarse", "exact")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Size:
    """A data set and a model."""

    name: str
    config: Mapping[str, Any]
    members: int


@dataclass(frozen=True)
class Outcome:
    """Processor time in seconds, validation loss of every member, steps, and share of padding in all tokens."""

    seconds: float
    losses: tuple[float, ...]
    steps: int
    padding: float


def quickstart() -> Size:
    model = {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0}
    train = {"epochs": 5, "batch_tokens": 512, "lr": 1e-2, "schedule": "cosine", "warmup_steps": 50}
    return Size("quickstart", {"data": {"dataset": "toy-grammar", "split": "iid"}, "model": model, "train": train}, 6)


def tatoeba(file: Path, pairs: int, epochs: int) -> list[Size]:
    data = {
        "dataset": "tatoeba",
        "pair": "eng-spa",
        "file": str(file),
        "limit": pairs,
        "split": "grouped",
        "normalise": "unicode",
        "max_words": 14,
        "valid": 500,
        "test": 500,
        "vocabulary": {"min_count": 2, "max_size": 8000},
    }
    models = {
        "64/4/2/256": {"d_model": 64, "heads": 4, "layers": 2, "d_ff": 256},
        "128/4/2/512": {"d_model": 128, "heads": 4, "layers": 2, "d_ff": 512},
    }
    train = {
        "epochs": epochs,
        "batch_tokens": 2048,
        "optimizer": "adamw",
        "lr": 2e-3,
        "schedule": "inverse-sqrt",
        "warmup_steps": 100,
    }
    return [Size(name, {"data": data, "model": model, "train": train}, 1) for name, model in models.items()]


def outcome(size: Size, kind: str, seed: int) -> Outcome:
    """Train a stack and return its outcome."""
    config = resolve({**size.config, "train": {**size.config["train"], "length_buckets": kind}}, current())
    last: dict[int, float] = {}

    def note(evaluation: Evaluation) -> None:
        last[evaluation.member] = evaluation.metrics["valid/loss"]

    seeds = range(100 * seed, 100 * seed + size.members)
    training = StackTraining(config, list(seeds), prepare(config.data, cache_root()), CPU, on_evaluation=note)
    before = time.process_time()
    training.run()
    seconds = time.process_time() - before
    padding = training.plan.padding()
    return Outcome(seconds, tuple(last.values()), training.steps, (padding.source + padding.target) / 2)


def row(size: Size, rounds: int) -> str:
    found: dict[str, list[Outcome]] = {kind: [] for kind in KINDS}
    for seed in range(1, rounds + 1):
        for kind in KINDS if seed % 2 else reversed(KINDS):
            found[kind].append(outcome(size, kind, seed))
    coarse, exact = (found[kind] for kind in KINDS)
    ratios = [before.seconds / after.seconds for before, after in zip(coarse, exact, strict=True)]
    losses = [[loss for one_stack in side for loss in one_stack.losses] for side in (coarse, exact)]
    differences = [after - before for before, after in zip(*losses, strict=True)]
    spread = statistics.stdev(differences) if len(differences) > 1 else float("nan")
    return (
        f"| {size.name} | {coarse[0].steps} | {exact[0].steps} | {100 * coarse[0].padding:.1f} % | "
        f"{100 * exact[0].padding:.1f} % | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | "
        f"{statistics.mean(losses[0]):.4f} | {statistics.mean(losses[1]):.4f} | "
        f"{statistics.mean(differences):+.4f} ± {spread:.4f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="Tatoeba pairs; without them, only the quickstart's size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", metavar="NAME", help="default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"{machine(CPU)}; torch {torch.__version__}, 1 thread, float32, {options.rounds} rounds\n")
    print("| size | steps, coarse | steps, exact | padding, coarse | padding, exact | speed-up of exact | "
          "loss, coarse | loss, exact | difference |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    sizes = [quickstart(), *(tatoeba(options.file, options.pairs, options.epochs) if options.file else ())]
    for size in sizes:
        if options.sizes and size.name not in options.sizes:
            continue
        print(row(size, options.rounds), flush=True)


if __name__ == "__main__":
    main()
