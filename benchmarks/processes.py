"""Runs in stacks as headtohead cuts them, against one process for every run: never slower?

    python benchmarks/processes.py [--file PAIRS] [--sizes NAME ...] [--runs 8] [--rounds 9]

Three sides train the same runs (one variant, a number of seeds) with the same cores:

stacked     as many processes as ``h2h run`` starts, each with one of the stacks that it cuts;
separate    as many processes as there are cores, each with a run of its own;
in a row    one process with one run at a time and all cores.

What is compared is how fast they go once they go: runs × steps a second. Processes are kept alive,
take their first steps unmeasured, and are then told in turn to take so many steps while all others
wait. Every side walks through the same shapes of batches. How long processes take to start is no
part of it; where there are more stacks than processes, those that go first stand for all.

Stacks are cut twice: by the estimate that short studies are cut by, and as runs of a million steps
would be, whose sizes ``h2h run`` measures first.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import yaml
from stacks import machine

from headtohead import Launcher
from headtohead.config.loading import load_file
from headtohead.data import cache_root, prepare
from headtohead.execution.local import PRELOAD
from headtohead.execution.stack_sizes import stack_sizes
from headtohead.planning.plan import Plan
from headtohead.planning.planner import make_plan
from headtohead.planning.stacking import arrange, processors
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

NOTEBOOK_1 = {"recipe": "scratch-en-fr", "train": {"epochs": None}}
TATOEBA = {
    "dataset": "tatoeba",
    "pair": "eng-spa",
    "limit": 20_000,
    "split": "grouped",
    "normalise": "unicode",
    "max_words": 14,
}


def tatoeba(words: int, tokens: int, **model: Any) -> dict[str, Any]:
    """Return a study of real pairs; what it reads is given by --file."""
    return {
        "data": {**TATOEBA, "vocabulary": {"max_size": words}},
        "model": {"dropout": 0.1, "dropout_attention": 0.0, "dropout_ffn": 0.0, **model},
        "train": {"batch_tokens": tokens, "lr": 1e-3},
    }


SIZES: dict[str, dict[str, Any]] = {
    "notebook 1": {**NOTEBOOK_1, "quirks": {"min_vocab_size": None}},
    "notebook 1, 5,000 rows": NOTEBOOK_1,
    "quickstart": {
        "data": {"dataset": "toy-grammar", "split": "iid"},
        "model": {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0},
        "train": {"batch_tokens": 512, "lr": 1e-3},
    },
    "tatoeba-heads": tatoeba(3000, 1024, d_model=64, heads=4, layers=2, d_ff=256),
    "128/4/2/512": tatoeba(8000, 1280, d_model=128, heads=4, layers=2, d_ff=512),
    "512/8/2/2048": tatoeba(8000, 1280, d_model=512, heads=8, layers=2, d_ff=2048),
}

WARM = 3
"""Steps of every process that are not measured."""

LONG = 10**6
"""Steps of runs for which it pays to measure sizes first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), metavar="NAME")
    parser.add_argument("--file", type=Path, help="tab-separated pairs, for the larger sizes")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--cut", type=int, metavar="MEMBERS", help="of every stack, as one likes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a turn takes, about")
    options = parser.parse_args()
    chosen = [name for name in options.sizes if options.file or "tatoeba" not in str(SIZES[name])]
    for name in set(options.sizes) - set(chosen):
        print(f"{name} is left out: it reads pairs, name them by --file", file=sys.stderr)
    cores = processors("cpu")
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}; {options.runs} runs of each "
        f"size on {cores} cores; medians and ranges of {options.rounds} rounds\n"
    )
    print("| size | cut into | separate, runs·steps/s | stacked / separate | of processor time | stacked / in a row |")
    print("|---|---|---:|---:|---:|---:|")
    for name in chosen:
        for row in rows(name, options, cores):
            print(row, flush=True)


def rows(name: str, options: argparse.Namespace, cores: int) -> Iterator[str]:
    """Measure one size; yield a row for each way of cutting it."""
    with tempfile.TemporaryDirectory(prefix="h2h-processes-") as folder:
        plan = planned(SIZES[name], options.runs, options.file, Path(folder))
        cuts = ways(plan, cores, options.cut)
        config = plan.by_slug[plan.runs[0].variant].config
    for cut, how in cuts.items():
        yield row(f"{name} | {shown(cut)} ({', '.join(how)})", cut, config, cores, options)


def ways(plan: Plan, cores: int, members: int | None) -> dict[tuple[int, ...], list[str]]:
    """Return the ways of cutting a plan's runs, as sizes of stacks, each with who says so."""
    if members:
        return {(members,) * (len(plan.runs) // members): ["asked for"]}
    found: dict[tuple[int, ...], list[str]] = {}
    measured = stack_sizes(plan, plan.runs, "cpu", cache_root())
    for how, sizes in (("estimated", {}), ("measured", measured)):
        found.setdefault(cut_by(plan, cores, sizes), []).append(how)
    return found


def cut_by(plan: Plan, cores: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the sizes of the stacks that headtohead makes of a plan's runs."""
    memory = Launcher().memory("cpu", cores)
    return tuple(len(stack) for stack in arrange(plan, plan.runs, cores, "cpu", sizes, memory))


def planned(base: Mapping[str, Any], runs: int, file: Path | None, folder: Path) -> Plan:
    """Plan a study of one variant and so many seeds."""
    base = {section: dict(own) if isinstance(own, Mapping) else own for section, own in base.items()}
    base["train"] = {**base["train"], "steps": LONG}
    base["train"].pop("epochs", None)
    if base.get("data", {}).get("dataset") == "tatoeba" and file is not None:
        base["data"]["file"] = str(file.resolve())
    path = folder / "processes.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "question": "Is it never slower than separate processes?",
                "base": base,
                "seeds": runs,
                "metrics": {"primary": "valid/loss", "report": []},
            }
        )
    )
    return make_plan(load_file(path), current(), folder / "runs")


def shown(cut: Sequence[int]) -> str:
    """Write sizes of stacks: ``2 × 4``."""
    return " + ".join(f"{cut.count(size)} × {size}" for size in dict.fromkeys(cut))


def row(head: str, cut: Sequence[int], config: RunConfig, cores: int, options: argparse.Namespace) -> str:
    """Let the three sides take turns; return what was measured."""
    at_once = min(cores, len(cut))
    with ExitStack() as running:
        stacked, separate, in_a_row = (
            running.enter_context(side(config, members, threads))
            for members, threads in ((cut[:at_once], max(1, cores // at_once)), ([1] * cores, 1), ([1], cores))
        )
        sides = [stacked, separate, in_a_row]
        step = max(one.turn(1).seconds for one in sides)
        steps = max(1, round(options.seconds / step))
        rounds = [take_turns(sides, steps, number) for number in range(options.rounds)]
    rates = [[turn.rate for turn in turns] for turns in rounds]
    apart = spread([separate for _, separate, _ in rates], "{:,.4g}")
    ratios = [
        [stacked / separate for stacked, separate, _ in rates],
        [turns[0].of_processor / turns[1].of_processor for turns in rounds],
        [stacked / in_a_row for stacked, _, in_a_row in rates],
    ]
    return f"| {head} | {apart} | " + " | ".join(spread(one, "{:.2f}") for one in ratios) + " |"


def take_turns(sides: Sequence[Side], steps: int, number: int) -> list[Turn]:
    """Let every side train once, each round another one first; return their turns in order."""
    found: dict[int, Turn] = {}
    for place in range(len(sides)):
        index = (number + place) % len(sides)
        found[index] = sides[index].turn(steps)
    return [found[index] for index in range(len(sides))]


def spread(values: Sequence[float], form: str) -> str:
    """Write the median, and the range."""
    low, middle, high = (form.format(one) for one in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


@dataclass(frozen=True)
class Turn:
    """What the processes of a side did in a turn: runs × steps, on the clock, of processors."""

    done: tuple[int, ...]
    walls: tuple[float, ...]
    processor: float

    @property
    def seconds(self) -> float:
        """How long the slowest process took."""
        return max(self.walls)

    @property
    def rate(self) -> float:
        """Runs × steps a second, every process by its own clock."""
        return sum(done / wall for done, wall in zip(self.done, self.walls, strict=True))

    @property
    def of_processor(self) -> float:
        """Runs × steps a second of a processor: what others on the machine do counts less."""
        return sum(self.done) / self.processor


@dataclass(frozen=True)
class Side:
    """Processes that train when they are told to."""

    members: tuple[int, ...]
    pipes: tuple[Connection, ...]

    def turn(self, steps: int) -> Turn:
        """Let every process take so many steps; wait for all."""
        for pipe in self.pipes:
            pipe.send(steps)
        found = [pipe.recv() for pipe in self.pipes]
        return Turn(
            tuple(steps * members for members in self.members),
            tuple(wall for wall, _ in found),
            sum(used for _, used in found),
        )


@contextmanager
def side(config: RunConfig, members: Sequence[int], threads: int) -> Iterator[Side]:
    """Start a process for each stack, and wait until it is warm."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    pipes, processes, first = [], [], 1
    for count in members:
        ours, theirs = context.Pipe()
        seeds = range(first, first + count)
        process = context.Process(
            target=train, args=(theirs, config.model_dump(mode="json"), seeds, threads), daemon=True
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
        first += count
    try:
        found = Side(tuple(members), tuple(pipes))
        found.turn(WARM)
        yield found
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(0)
            process.join()
            pipe.close()


def train(pipe: Connection, config: Mapping[str, Any], seeds: Sequence[int], threads: int) -> None:
    """Entry of a process: train one stack as a worker does, as many steps as it is told."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    chosen = RunConfig.model_validate(config)
    data = prepare(chosen.data, cache_root())
    training = StackTraining(chosen, seeds, data, torch.device("cpu"))
    batches = training._batches()
    gc.freeze()
    while steps := pipe.recv():
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(steps):
            training._step(next(batches))
        pipe.send((time.perf_counter() - wall, time.process_time() - processor))


if __name__ == "__main__":
    main()
