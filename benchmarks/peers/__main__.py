"""Speed of a single run compared with plain torch, and equality of the trained model.

    python benchmarks/peers speed --file PAIRS [--size 128/4/2/512] [--turns 5] [--steps 8]
    python benchmarks/peers proof --file PAIRS [--steps 5]

`--precision bfloat16` trains the other sides with autocast, unless `--peer-precision` is float32.

Every side trains the encoder-decoder of Vaswani et al. 2017 from the same initial weights, on the
same pairs and vocabulary, with the same dropout and torch's Adam.

- headtohead: a stack of one member in its own training loop;
- notebook: as in the teaching notebooks: random pairs padded to their longest sentence, attention
  by scores and masks, logits at every position, ``.item()`` after each step;
- torch.nn.Transformer: an efficient loop on headtohead's batches: sentences of similar lengths,
  fused Adam, losses read once per turn.

In ``speed`` the sides train in alternating turns. In ``proof`` all train on the same batches in
float64 without dropout. Speeds count target tokens that are predicted, with <eos> and without padding.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from pathlib import Path

import ours
import tables
import torch
from sides import Setting, Sides
from sizes import SIZES
from turns import Turned

from headtohead.errors import HeadToHeadError
from headtohead.training.memory import keep_freed_memory

STEPS = {"speed": 8, "proof": 5}


def main() -> None:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__.splitlines()[0])
    parser.add_argument("comparison", choices=list(STEPS))
    parser.add_argument("--file", type=Path, required=True, help="tab-separated pairs, .xz or not")
    parser.add_argument("--size", choices=[size.name for size in SIZES], default=SIZES[0].name)
    parser.add_argument(
        "--turns", type=int, default=5, help="turns of each side after a first, uncounted turn"
    )
    parser.add_argument("--steps", type=int, help="steps of a turn, or of a training")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--peer-precision",
        choices=["float32", "bfloat16"],
        help="of the other sides; default: --precision",
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="processor: total seconds of all cores, for a machine with other processes",
    )
    options = parser.parse_args()
    if not options.file.is_file():
        parser.error(f"'{options.file}' is not a file")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    measure = {"speed": speed, "proof": proof}[options.comparison]
    try:
        print(measure(options, setting_of(options)))
    except HeadToHeadError as error:
        parser.error(str(error))


def setting_of(options: argparse.Namespace) -> Setting:
    return Setting(
        next(size for size in SIZES if size.name == options.size),
        options.file,
        options.steps or STEPS[options.comparison],
        precision=options.precision,
        peer_precision=options.peer_precision or options.precision,
        threads=options.threads,
    )


def speed(options: argparse.Namespace, setting: Setting) -> str:
    """Return the speeds of the sides, trained in alternating turns; the first turn does not count."""
    steps = setting.steps
    setting = dataclasses.replace(setting, steps=steps * (options.turns + 1), alike=False)
    sides = Sides(setting)
    found: dict[str, list[Turned]] = {}
    made = {name: make() for name, make in sides.makers.items()}
    print(tables.data(sides.training), flush=True)
    for turn in range(options.turns + 1):
        for name, side in made.items():
            found.setdefault(name, []).append(side(steps))
        print(f"turn {turn} of {options.turns}", flush=True)
    return tables.speed(
        {name: turns[1:] for name, turns in found.items()},
        options.clock,
        f"{setting.size.name}, {tables.machine(setting)}; {ours.pairs_a_step(sides.training)} "
        f"pairs per step, {ours.padded(sides.training)}; {options.turns} alternating turns of {steps} steps",
    )


def proof(options: argparse.Namespace, setting: Setting) -> str:
    """Return the losses of the sides in float64 without dropout, where all must be equal."""
    setting = dataclasses.replace(
        setting, precision="float64", peer_precision="float64", dropout=0.0
    )
    found = {name: make()(setting.steps).losses for name, make in Sides(setting).makers.items()}
    return tables.proof(found, f"{setting.size.name}, {tables.machine(setting)}")


if __name__ == "__main__":
    main()
