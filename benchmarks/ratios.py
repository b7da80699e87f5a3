"""Time per training step of an experiment's variants over that of its baseline, and the steps of equal time.

    python benchmarks/ratios.py experiments/contested/equal-time.yaml [--set data.file=TEXT --set data.download=null]

Variants train alone on the data of the experiment, in alternating rounds on one thread; medians of processor time. The
printed lines are values of ``train.steps`` with which a variant takes as long as the baseline. Another device or
another size of stack has other ratios.
"""

from __future__ import annotations

import argparse
import os

import torch
from stacks import alternate, machine

from headtohead.config.loading import load_file
from headtohead.data import cache_root, prepare
from headtohead.planning.design import expand
from headtohead.training.loop import StackTraining


def main(words: list[str] | None = None) -> None:
    """Print a line per variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", metavar="FILE")
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="as for h2h run"
    )
    parser.add_argument("--rounds", type=int, default=24)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    loaded, device = load_file(options.experiment, options.set), torch.device("cpu")
    loaded.load_plugins()
    design = expand(loaded)
    configs = [variant.config for variant in design.variants]
    trainings = [
        StackTraining(config, [1], prepare(config.data, cache_root()), device) for config in configs
    ]
    batches = [training._batches() for training in trainings]
    steps = [
        lambda own=own, batch=batch: own._step(batch)
        for own, batch in zip(trainings, map(next, batches), strict=True)
    ]
    seconds = dict(
        zip(
            (own.slug for own in design.variants),
            alternate(steps, device, options.rounds),
            strict=True,
        )
    )
    print(
        f"# {machine(device)}, load {os.getloadavg()[0]:.1f}; torch {torch.__version__}; {options.rounds} rounds"
    )
    for own, training in zip(design.variants, trainings, strict=True):
        ratio = seconds[own.slug] / seconds[design.baseline]
        equal = round(design.variant(design.baseline).config.train.steps or training.steps) / ratio
        print(
            f"train.steps: {equal:.0f}    # {own.title}: {ratio:.2f} times the time per step of the baseline"
        )


if __name__ == "__main__":
    main()
