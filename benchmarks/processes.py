"""Speed of stacked runs against one process per run.

    python benchmarks/processes.py [--file PAIRS] [--sizes NAME ...] [--runs 8] [--rounds 9]

Three sides train the same runs (one variant, several seeds) on the same cores:

stacked      as many processes as ``h2h run`` starts, each with one of its stacks;
separate     one process per core, each with a single run;
in sequence  one process with a single run and all cores.

The script compares steady-state speed, in runs × steps per second. Processes stay alive, take their
first steps unmeasured, and then train alternately while the other processes wait. All sides train
on the same batch shapes. The start of processes is not measured. With more stacks than processes,
only the first stacks are measured.
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

from headtohead.config.loading import load_file
from headtohead.data import cache_root, prepare
from headtohead.execution.local import PRELOAD
from headtohead.planning.plan import Plan
from headtohead.planning.planner import make_plan
from headtohead.planning.stacking import arrange, processors
from headtohead.plugin import Launcher
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
    """Return a study of the pairs of --file."""
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
"""Steps of runs that are long enough for ``h2h run`` to measure stack sizes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES), metavar="NAME")
    parser.add_argument("--file", type=Path, help="tab-separated pairs, for the larger sizes")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--members", type=int, help="members of every stack; default: as h2h run")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="approximate duration of a turn")
    options = parser.parse_args()
    chosen = [name for name in options.sizes if options.file or "tatoeba" not in str(SIZES[name])]
    for name in set(options.sizes) - set(chosen):
        print(f"{name} is skipped; it needs --file", file=sys.stderr)
    cores = processors("cpu")
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}; {options.runs} runs of each "
        f"size on {cores} cores; medians and ranges of {options.rounds} rounds\n"
    )
    print("| size | stacks | separate, runs·steps/s | stacked / separate | in processor time | stacked / in sequence |")
    print("|---|---|---:|---:|---:|---:|")
    for name in chosen:
        for row in rows(name, options, cores):
            print(row, flush=True)


def rows(name: str, options: argparse.Namespace, cores: int) -> Iterator[str]:
    """Measure a size and yield a row."""
    with tempfile.TemporaryDirectory(prefix="h2h-processes-") as folder:
        plan = make_study_plan(SIZES[name], options.runs, options.file, Path(folder))
        sizes = arranged_sizes(plan, cores, options.members)
        config = plan.by_slug[plan.runs[0].variant].config
    yield row(f"{name} | {format_sizes(sizes)}", sizes, config, cores, options)


def arranged_sizes(plan: Plan, cores: int, members: int | None) -> tuple[int, ...]:
    """Return the sizes of the stacks: ``members``, or those that ``h2h run`` would train."""
    if members:
        return (members,) * (len(plan.runs) // members)
    memory = Launcher().memory("cpu", cores)
    return tuple(len(stack) for stack in arrange(plan, plan.runs, cores, "cpu", memory))


def make_study_plan(base: Mapping[str, Any], runs: int, file: Path | None, folder: Path) -> Plan:
    """Return the plan of a study with a single variant and ``runs`` seeds."""
    base = {section: dict(own) if isinstance(own, Mapping) else own for section, own in base.items()}
    base["train"] = {**base["train"], "steps": LONG}
    base["train"].pop("epochs", None)
    if base.get("data", {}).get("dataset") == "tatoeba" and file is not None:
        base["data"]["file"] = str(file.resolve())
    path = folder / "processes.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "question": "Are stacks faster than separate processes?",
                "base": base,
                "seeds": runs,
                "metrics": {"primary": "valid/loss", "report": []},
            }
        )
    )
    return make_plan(load_file(path), current(), folder / "runs")


def format_sizes(sizes: Sequence[int]) -> str:
    """Return sizes of stacks as text: ``2 × 4``."""
    return " + ".join(f"{sizes.count(size)} × {size}" for size in dict.fromkeys(sizes))


def row(head: str, sizes: Sequence[int], config: RunConfig, cores: int, options: argparse.Namespace) -> str:
    """Measure the three sides in alternating turns and return a row of the table."""
    at_once = min(cores, len(sizes))
    with ExitStack() as running:
        sides = [
            running.enter_context(side(config, members, threads))
            for members, threads in ((sizes[:at_once], max(1, cores // at_once)), ([1] * cores, 1), ([1], cores))
        ]
        step = max(side.turn(1).seconds for side in sides)
        steps = max(1, round(options.seconds / step))
        rounds = [take_turns(sides, steps, number) for number in range(options.rounds)]
    rates = [[turn.rate for turn in turns] for turns in rounds]
    separate_rates = spread([separate for _, separate, _ in rates], "{:,.4g}")
    ratios = [
        [stacked / separate for stacked, separate, _ in rates],
        [turns[0].processor_rate / turns[1].processor_rate for turns in rounds],
        [stacked / in_sequence for stacked, _, in_sequence in rates],
    ]
    return f"| {head} | {separate_rates} | " + " | ".join(spread(values, "{:.2f}") for values in ratios) + " |"


def take_turns(sides: Sequence[Side], steps: int, number: int) -> list[Turn]:
    """Train every side once, starting with another side in each round; return the turns in order."""
    turns: dict[int, Turn] = {}
    for offset in range(len(sides)):
        index = (number + offset) % len(sides)
        turns[index] = sides[index].turn(steps)
    return [turns[index] for index in range(len(sides))]


def spread(values: Sequence[float], form: str) -> str:
    """Return the median and the range as text."""
    low, median, high = (form.format(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{median} ({low} to {high})"


@dataclass(frozen=True)
class Turn:
    """A turn of a side: runs × steps and wall seconds of each process, and total processor seconds."""

    done: tuple[int, ...]
    walls: tuple[float, ...]
    processor: float

    @property
    def seconds(self) -> float:
        """Wall seconds of the slowest process."""
        return max(self.walls)

    @property
    def rate(self) -> float:
        return sum(done / wall for done, wall in zip(self.done, self.walls, strict=True))

    @property
    def processor_rate(self) -> float:
        """Runs × steps per processor second, which depends less on other processes."""
        return sum(self.done) / self.processor


@dataclass(frozen=True)
class Side:
    """Processes that train on request."""

    members: tuple[int, ...]
    pipes: tuple[Connection, ...]

    def turn(self, steps: int) -> Turn:
        """Train every process for a number of steps and wait for all."""
        for pipe in self.pipes:
            pipe.send(steps)
        times = [pipe.recv() for pipe in self.pipes]
        return Turn(
            tuple(steps * members for members in self.members),
            tuple(wall for wall, _ in times),
            sum(processor for _, processor in times),
        )


@contextmanager
def side(config: RunConfig, members: Sequence[int], threads: int) -> Iterator[Side]:
    """Start a process for each stack and train its first steps."""
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
        started = Side(tuple(members), tuple(pipes))
        started.turn(WARM)
        yield started
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(0)
            process.join()
            pipe.close()


def train(pipe: Connection, config: Mapping[str, Any], seeds: Sequence[int], threads: int) -> None:
    """Train a stack in a process, for the number of steps that the pipe delivers; 0 ends it."""
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
