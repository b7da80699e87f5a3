"""One run beside its peers: target tokens a second, and that all train the same model.

    python benchmarks/peers speed --file ../shared/data/eng-spa.manythings-2019-07-21.2col.tsv.xz \
        [--size 128/4/2/512] [--turns 5] [--steps 8] [--joeynmt PYTHON]
    python benchmarks/peers losses --file FILE [--steps 300] [--seeds 3]
    python benchmarks/peers proof --file FILE [--steps 5]

Every side trains the encoder-decoder of Vaswani et al. 2017 from the weights that headtohead drew,
on the same pairs and vocabulary, with the same dropout and Adam as torch has it.

- headtohead: a stack of one, by its own training loop;
- notebook: as the teaching notebooks have it: pairs as they come, padded to their longest sentence,
  attention by scores and masks, logits of every position, ``.item()`` after each step;
- torch.nn.Transformer, x-transformers: in a good loop, on the very batches of headtohead: sentences
  of like lengths together, fused Adam, losses read once a turn;
- transformers: its Trainer with a Marian model, sentences of like lengths together;
- JoeyNMT: its own loop on headtohead's batches, in a process and an environment of its own.

``speed`` lets them train in turns. ``losses`` gives all of them the same batches, one after the
other, with dropout, and ``proof`` without dropout in float64. Counted are words that are predicted,
<eos> among them and padding not.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import warnings
from contextlib import ExitStack
from pathlib import Path

import ours
import tables
import torch
from sides import NAMES, Setting, Sides
from sizes import SIZES
from turns import Turned

from headtohead.errors import HeadToHeadError
from headtohead.training.memory import keep_freed_memory

AGAIN = "headtohead, other dropout"
STEPS = {"speed": 8, "losses": 300, "proof": 5}


def main() -> None:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=list(STEPS))
    parser.add_argument("--file", type=Path, required=True, help="tab-separated pairs, .xz or not")
    parser.add_argument("--size", choices=[one.name for one in SIZES], default=SIZES[0].name)
    parser.add_argument("--turns", type=count, default=5, help="of each side, after a first one")
    parser.add_argument("--steps", type=count, help="of a turn, or of a training")
    parser.add_argument("--seeds", type=count, default=3, help="trainings of each side")
    parser.add_argument("--last", type=count, default=50, help="steps whose losses are averaged")
    parser.add_argument("--batch-tokens", type=count, help="of a batch, other than the size has")
    parser.add_argument(
        "--length-buckets",
        choices=["coarse", "exact"],
        default="exact",
        help="pairs that share headtohead's batches, as train.length_buckets has it",
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=count, default=torch.get_num_threads())
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="processor: seconds of all cores together, for a machine that others use too",
    )
    parser.add_argument("--joeynmt", type=Path, help="the Python of an environment that has it")
    parser.add_argument("--only", nargs="*", choices=NAMES[1:], help="beside headtohead")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for path in (options.file, options.joeynmt):
        if path is not None and not path.is_file():
            parser.error(f"'{path}' is no file")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU that torch can use")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    measure = {"speed": speed, "losses": losses, "proof": proof}[options.what]
    try:
        text = measure(options, setting_of(options))
    except HeadToHeadError as error:
        parser.error(str(error))
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


def count(text: str) -> int:
    """Return a number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def setting_of(options: argparse.Namespace) -> Setting:
    size = next(one for one in SIZES if one.name == options.size)
    size = dataclasses.replace(size, length_buckets=options.length_buckets)
    if options.batch_tokens:
        size = dataclasses.replace(size, batch_tokens=options.batch_tokens)
    return Setting(
        size,
        options.file,
        options.steps or STEPS[options.what],
        precision=options.precision,
        device=torch.device(options.device),
        threads=options.threads,
        joeynmt=options.joeynmt,
    )


def names_of(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name in (NAMES[0], *(options.only or NAMES)))


def speed(options: argparse.Namespace, setting: Setting) -> str:
    """Let the sides train in turns; the first turn of each is not counted."""
    steps = setting.steps
    setting = dataclasses.replace(setting, steps=steps * (options.turns + 1), alike=False)
    with ExitStack() as stack:
        sides = Sides(setting, stack)
        found: dict[str, list[Turned]] = {}
        made = dict(sides.make(names_of(options)))
        print(tables.data(sides.training), flush=True)
        for turn in range(options.turns + 1):
            for name, side in made.items():
                found.setdefault(name, []).append(side(steps))
            print(f"turn {turn} of {options.turns}", flush=True)
        return tables.speed(
            {name: turns[1:] for name, turns in found.items()},
            options.clock,
            f"{setting.size.name}, {tables.machine(setting)}; {ours.pairs_a_step(sides.training)} "
            f"pairs a step, {ours.padded(sides.training)}; {options.turns} turns of {steps} steps, "
            "sides in turn",
        )


def losses(options: argparse.Namespace, setting: Setting) -> str:
    """Train every side on the same batches from the same weights, seed by seed."""
    found: dict[str, list[list[float]]] = {}
    for seed in range(1, options.seeds + 1):
        for name, side in trained(dataclasses.replace(setting, seed=seed), names_of(options)):
            found.setdefault(name, []).append(side.losses)
            last = statistics.mean(side.losses[-options.last :])
            print(f"seed {seed}, {name}: {last:.4f}, {side.seconds:.0f} s", flush=True)
    pairs = ours.pairs_a_step(setting.training())
    return tables.losses(
        found, options.last, f"{setting.size.name}, {tables.machine(setting)}; {setting.steps} steps of {pairs} pairs"
    )


def trained(setting: Setting, names: tuple[str, ...]) -> list[tuple[str, Turned]]:
    """Train all sides from one seed, headtohead a second time with other dropout."""
    with ExitStack() as stack:
        sides = Sides(setting, stack)
        found = [(name, side(setting.steps)) for name, side in sides.make(names)]
    if setting.dropout:
        with ExitStack() as stack:
            again = dict(Sides(setting, stack).make(NAMES[:1]))
            torch.manual_seed(1000 + setting.seed)
            found.insert(1, (AGAIN, again[NAMES[0]](setting.steps)))
    return found


def proof(options: argparse.Namespace, setting: Setting) -> str:
    """Train every side in float64 without dropout: the losses of the same work are the same."""
    setting = dataclasses.replace(setting, precision="float64", dropout=0.0)
    found = {name: side.losses for name, side in trained(setting, names_of(options))}
    return tables.proof(found, f"{setting.size.name}, {tables.machine(setting)}")


if __name__ == "__main__":
    main()
