"""Share of the validations in the time of training and validation.

    python benchmarks/validation_share.py [EXPERIMENT ...]

For the baseline of each experiment file, stacks of one run and of all seeds alternate steps on its batches with
validations, in processor time of one thread. With the numbers of steps and validations of a whole training, their
medians give the share. Exits with 1 if a share is above the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from headtohead import plan
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

QUICKSTART = Path(__file__).parents[1] / "experiments" / "quickstart.yaml"
MAX_SHARE = 0.05
STEPS = 20
"""Steps between two validations of the measurement, over batches of several lengths."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", type=Path, default=[QUICKSTART])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print(
        "| experiment | runs of the stack | steps | validations | ms a step | ms a validation | share |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    largest = 0.0
    for experiment in options.experiments:
        with tempfile.TemporaryDirectory() as runs:
            planned = plan(experiment, runs=runs)
        by_slug = {variant.slug: variant for variant in planned.variants}
        variant = by_slug[planned.design.baseline]
        seeds = planned.design.seeds
        for members in sorted({1, len(seeds)}):
            data = planned.prepared[variant.data_hash]
            training = StackTraining(variant.config, seeds[:members], data, torch.device("cpu"))
            step, validation = measure(training, options.rounds)
            count = -(-training.steps // training.evaluate_every)
            share = count * validation / (count * validation + training.steps * step)
            largest = max(largest, share)
            cells = [experiment.stem, members, training.steps, count]
            cells += [f"{1000 * step:.2f}", f"{1000 * validation:.1f}", f"{share:.1%}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"largest share: {largest:.1%} (at most {MAX_SHARE:.0%})")
    sys.exit(int(largest > MAX_SHARE))


def measure(training: StackTraining, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a step and of a validation, in alternating rounds after one that does not count."""
    steps = []
    validations = []
    for _ in range(rounds + 1):
        started = time.process_time()
        training.train_steps(STEPS)
        between = time.process_time()
        training._validation()
        steps.append((between - started) / STEPS)
        validations.append(time.process_time() - between)
    return statistics.median(steps[1:]), statistics.median(validations[1:])


if __name__ == "__main__":
    main()
