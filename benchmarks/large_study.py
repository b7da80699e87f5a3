"""What the commands cost on studies of up to 10,000 runs, and how that grows with the runs.

    python benchmarks/large_study.py [--runs 100 1000 10000] [--folder FOLDER] [--sync-runs 200]

Every command is a fresh process on a study that `many_runs.py` made: its wall time, its processor
time and its largest memory. `sync` ships to a new SQLite store with --sync, then once more with
nothing to ship. Apart from that, its cost is compared with MLflow's own: every call that shipping a
few runs makes to MLflow's client is made again, bare, on a store of its own, in turns of ten runs.
Last comes the memory of the parent of ``h2h run`` while stacks end, one after the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import yaml
from many_runs import Quiet, Shape, make_study

from headtohead.config.loading import load_file
from headtohead.data import cache_root
from headtohead.execution.scheduler import Machine, execute
from headtohead.planning.planner import make_plan
from headtohead.plugins.registry import current
from headtohead.storage import states
from headtohead.tracking.rundirs import read_study
from headtohead.tracking.shipping import ShipReport, opened, ship_runs
from headtohead.tracking.store import Store
from headtohead.tracking.study import describe, open_study

TURN = 10
"""Runs that either side ships before it is the other's turn."""


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, seconds of a processor, and the largest memory in MiB."""

    wall: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} | {self.processor:.1f} | {self.memory:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--folder", type=Path, help="where studies are kept; default: nowhere")
    parser.add_argument("--rounds", type=int, default=3, help="of each command; the best counts")
    parser.add_argument("--crossed", action="store_true", help="two axes instead of three")
    parser.add_argument("--sync", type=int, nargs="*", default=[], metavar="RUNS", help="sizes that are shipped whole")
    parser.add_argument("--sync-runs", type=int, default=200, help="shipped beside bare calls")
    parser.add_argument("--stacks", type=int, default=200, help="for the memory of the parent")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="h2h-large-") as scratch:
        folder = options.folder or Path(scratch)
        print(machine() + "\n")
        costs = {}
        for runs in options.runs:
            shape = (Shape.crossed if options.crossed else Shape.of)(runs)
            home = folder / f"{'crossed' if options.crossed else 'runs'}-{runs}"
            if not (home / "runs" / "large" / "experiment.json").exists():
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir(parents=True)
                make_study(home, shape)
            costs[shape.runs] = commands(home, options.rounds, runs in options.sync)
        table(costs)
        if options.sync_runs:
            print("\n" + beside_bare_calls(folder, options.runs, options.sync_runs))
        if options.stacks:
            print("\n" + parents_memory(Path(scratch), options.stacks))


def commands(home: Path, rounds: int, sync: bool) -> dict[str, Cost]:
    """Measure every command on one study."""
    found = {
        "plan": best(home, rounds, "plan", "large.yaml"),
        "plan, nothing run yet": best(home, rounds, "plan", "large.yaml", "--runs", "none"),
        "status": best(home, rounds, "status", "large.yaml"),
        "report": best(home, rounds, "report", "large.yaml"),
    }
    if sync:
        with tempfile.TemporaryDirectory(dir=home, prefix="store-") as store:
            words = ("sync", "large", "--uri", f"sqlite:///{store}/mlflow.db")
            found["sync"] = best(home, 1, *words)
            found["sync, nothing new"] = best(home, 1, *words)
    return found


def best(home: Path, rounds: int, *words: str) -> Cost:
    """Return the least of each cost over some rounds: what else the machine did only adds."""
    found = [process(home, *words) for _ in range(rounds)]
    return Cost(*(min(getattr(one, name) for one in found) for name in ("wall", "processor", "memory")))


def process(home: Path, *words: str) -> Cost:
    """Run a command as a process of its own."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_") and k != "PYTHONDONTWRITEBYTECODE"
    }
    # A process begins with the memory of the one it was forked from: that must be a small one.
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, sys.executable, "-m", "headtohead.cli", *words],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"h2h {' '.join(words)} failed: {done.stderr}")
    return Cost(*json.loads(done.stdout))


MEASURED = """
import json, resource, subprocess, sys, time
began = time.monotonic()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
sys.exit(code)
"""


def table(costs: Mapping[int, Mapping[str, Cost]]) -> None:
    """Print what was measured, and how processor time grows from the last size but one."""
    sizes = sorted(costs)
    print("| command | runs | wall, s | processor, s | memory, MiB | growth |")
    print("|---|---:|---:|---:|---:|---:|")
    for command in dict.fromkeys(name for size in sizes for name in costs[size]):
        before: tuple[int, Cost] | None = None
        for size in sizes:
            cost = costs[size].get(command)
            if cost is None:
                continue
            print(f"| {command} | {size:,} | {cost} | {growth(before, (size, cost))} |")
            before = size, cost


def growth(before: tuple[int, Cost] | None, after: tuple[int, Cost]) -> str:
    """Return the exponent k of processor time ~ runs^k between two sizes."""
    if before is None:
        return "–"
    times = after[1].processor / before[1].processor
    return f"{math.log(times) / math.log(after[0] / before[0]):.2f}"


def beside_bare_calls(folder: Path, sizes: Sequence[int], runs: int) -> str:
    """Ship runs, and make the same calls bare; return both costs and their ratio."""
    home = next(home for size in sorted(sizes) if size >= runs for home in folder.glob(f"*-{size}"))
    study = read_study(home / "runs" / "large")
    with tempfile.TemporaryDirectory(dir=home, prefix="stores-") as scratch:
        uris = [f"sqlite:///{scratch}/{side}/mlflow.db" for side in ("whole", "bare")]
        with opened(uris[0]) as whole, opened(uris[1]) as other:
            recorder = Recorder(whole.client)
            destination = open_study(replace(whole, client=recorder), study)
            describe(destination, study)
            bare = Bare(other, destination.experiment_id, destination.parent)
            report = ShipReport(study.name, uris[0], destination.experiment_id)
            spent: dict[str, list[float]] = {"ship": [], "bare": []}
            for start in range(0, runs, TURN):
                some = study.runs()[start : start + TURN]
                recorder.calls.clear()
                spent["ship"].append(timed(lambda some=some: ship_runs(destination, study, some, report, sweep=True)))
                calls = list(recorder.calls)
                spent["bare"].append(timed(lambda calls=calls: bare.make(calls)))
    assert report.shipped == runs, report
    whole_ms, bare_ms = (1000 * sum(spent[side]) / runs for side in ("ship", "bare"))
    ratios = [a / b for a, b in zip(spent["ship"], spent["bare"], strict=True)]
    return (
        f"sync: {runs} runs at {whole_ms:.0f} ms of processor time each; MLflow's calls alone, "
        f"made bare, {bare_ms:.0f} ms; ratio {whole_ms / bare_ms:.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f} over turns of {TURN} runs)"
    )


def timed(action: Any) -> float:
    """Return the processor time of a call, in seconds."""
    began = time.process_time()
    action()
    return time.process_time() - began


class Recorder:
    """MLflow's client, that remembers every call and what it returned."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            found = method(*arguments, **options)
            self.calls.append((name, arguments, options, found))
            return found

        return call


class Bare:
    """Makes recorded calls on another store, the ids of the first one exchanged for its own."""

    def __init__(self, store: Store, experiment: str, parent: str) -> None:
        self.client = store.client
        own = store.experiment("large")
        self.ids = {experiment: own, parent: self.client.create_run(own).info.run_id}

    def make(self, calls: Sequence[tuple[str, tuple[Any, ...], dict[str, Any], Any]]) -> None:
        for name, arguments, options, result in calls:
            found = getattr(self.client, name)(
                *(self._own(one) for one in arguments), **{key: self._own(one) for key, one in options.items()}
            )
            if name == "create_run":
                self.ids[result.info.run_id] = found.info.run_id
            elif name == "create_logged_model":
                self.ids[result.model_id] = found.model_id

    def _own(self, value: Any) -> Any:
        from mlflow.entities import LoggedModelOutput, Metric

        if isinstance(value, str):
            return self.ids.get(value, value)
        if isinstance(value, list):
            return [self._own(one) for one in value]
        if isinstance(value, Metric) and value.model_id:
            return Metric(value.key, value.value, value.timestamp, value.step, model_id=self.ids[value.model_id])
        if isinstance(value, LoggedModelOutput):
            return LoggedModelOutput(self.ids[value.model_id], value.step)
        return value


def parents_memory(folder: Path, stacks: int) -> str:
    """Train many stacks of one step each and watch what the parent keeps of those that ended."""
    file = folder / "parent.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "question": "What does the parent keep?",
                "base": {
                    "data": {"dataset": "toy-grammar", "size": 400},
                    "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16},
                    "train": {"steps": 1, "lr": 1e-3},
                    "evaluate": {"decode": "none", "unpadded": False, "test_limit": 1},
                },
                # Sizes of batches are no part of what members of a stack may differ in.
                "design": [{"product": {"train.batch_tokens": [64 + n for n in range(stacks)]}}],
                "metrics": {"primary": "test/loss", "report": []},
                "seeds": 1,
            }
        )
    )
    plan = make_plan(load_file(file), current(), folder / "parent-runs")
    launcher, watch = current().launcher("local")(), Watched()
    outcome = execute(plan, Machine(launcher, threads=1), cache_root(), watch, "h2h run")
    assert outcome.states == {states.DONE: stacks}, outcome
    (first, before), (last, after) = (watch.after[round(part * len(watch.after)) - 1] for part in (0.25, 1))
    return (
        f"parent of h2h run: {first / 2**20:,.2f} MiB of Python objects after {stacks // 4} stacks "
        f"that ended, {last / 2**20:,.2f} MiB after {stacks}; resident {before / 2**20:,.0f} and "
        f"{after / 2**20:,.0f} MiB"
    )


class Watched(Quiet):
    """Notes the memory of Python's objects, and of the process, whenever a stack has ended."""

    def __init__(self) -> None:
        self.after: list[tuple[int, int]] = []
        self.process = psutil.Process()

    def start(self, folders: Sequence[Any]) -> None:
        tracemalloc.start()

    def ended(self, folder: Any, code: int) -> None:
        gc.collect()
        self.after.append((tracemalloc.get_traced_memory()[0], self.process.memory_info().rss))


def machine() -> str:
    """Return what it was measured on."""
    named = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "pandas", "matplotlib", "mlflow"))
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return (
        f"{named[0] if named else platform.machine()}, {os.cpu_count()} cores; Python "
        f"{platform.python_version()}, {packages}; `{command}`"
    )


if __name__ == "__main__":
    main()
