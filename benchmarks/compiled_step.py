"""Is a step with ``torch.compile`` faster than an eager step, after the time of the compilation?

    python benchmarks/compiled_step.py [EXPERIMENT ...]

Two stacks of the first ``--members`` seeds of the experiment's baseline alternate steps on the same batches: one is
eager, in the other every block of the encoder and the decoder, forward and backward, is compiled by inductor. The
median step times and the time of the first compiled steps give the speed-up of a whole training. torch.compile pays
if it is at least 1.15.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from headtohead import plan
from headtohead.model.blocks import DecoderLayer, EncoderLayer
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
WARM_UP = 3
BLOCK = 5
"""Steps before the stacks switch."""

MIN_RATIO = 1.15
"""Smallest speed-up of a whole training at which compiling pays."""


def measure(experiment: Path, members: int, blocks: int) -> None:
    """Print a row of the table."""
    with tempfile.TemporaryDirectory() as runs:
        planned = plan(experiment, runs=runs)
    by_slug = {variant.slug: variant for variant in planned.variants}
    variant = by_slug[planned.design.baseline]
    data = planned.prepared[variant.data_hash]
    seeds = planned.design.seeds[:members]
    eager = StackTraining(variant.config, seeds, data, torch.device("cpu"))
    compiled = StackTraining(variant.config, seeds, data, torch.device("cpu"))
    for block in compiled.model.modules():
        if isinstance(block, EncoderLayer | DecoderLayer):
            block.compile()
    eager.train_steps(WARM_UP)
    started = time.perf_counter()
    compiled.train_steps(WARM_UP)
    compile_seconds = time.perf_counter() - started
    seconds: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(blocks):
        for name, training in (("eager", eager), ("compiled", compiled)):
            started = time.perf_counter()
            training.train_steps(BLOCK)
            seconds[name].append((time.perf_counter() - started) / BLOCK)
    eager_step = statistics.median(seconds["eager"])
    compiled_step = statistics.median(seconds["compiled"])
    steps = eager.steps
    ratio = eager_step * steps / (compiled_step * steps + compile_seconds)
    cells = [
        experiment.stem,
        members,
        steps,
        f"{1000 * eager_step:.1f}",
        f"{1000 * compiled_step:.1f}",
        f"{compile_seconds:.0f}",
        f"{ratio:.2f}",
        "yes" if ratio >= MIN_RATIO else "no",
    ]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    """Measure each experiment."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = [EXPERIMENTS / "quickstart.yaml", EXPERIMENTS / "published" / "nanogpt-cpu.yaml"]
    parser.add_argument("experiments", nargs="*", type=Path, default=default)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| experiment | runs | steps | ms eager | ms compiled | s to compile | ratio | pays |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for experiment in options.experiments:
        measure(experiment, options.members, options.blocks)


if __name__ == "__main__":
    main()
