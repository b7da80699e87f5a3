"""Cost of the commands on studies of up to 10,000 runs, and its growth with the number of runs.

    python benchmarks/large_study.py [--runs 100 1000 10000] [--folder FOLDER] [--sync-runs 200]

The script runs every command as a new process on a study that `many_runs.py` generated and prints
wall time, processor time and peak memory. With --sync, `sync` ships to a new SQLite store, then
again with nothing to ship. The cost of shipping is also compared with MLflow's own cost: the calls
to MLflow's client are recorded and repeated without headtohead on a second store, in turns of ten
runs. Last, the script measures the memory of the parent of ``h2h run`` while stacks end.
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
from many_runs import Quiet, StudySize, make_study

from headtohead.config.loading import load_file
from headtohead.data import cache_root
from headtohead.execution.scheduler import Machine, execute
from headtohead.planning.planner import make_plan
from headtohead.plugins.registry import current
from headtohead.storage import states
from headtohead.tracking.rundirs import TrackedStudy
from headtohead.tracking.shipping import ShipReport, opened, ship_runs
from headtohead.tracking.store import Store
from headtohead.tracking.study import describe, open_study

TURN = 10
"""Number of runs per turn of either side."""


@dataclass(frozen=True)
class Cost:
    """Wall seconds, processor seconds, and peak memory in MiB."""

    wall: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} | {self.processor:.1f} | {self.memory:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--folder", type=Path, help="keep the studies here; default: a temporary folder")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each command; the best counts")
    parser.add_argument("--crossed", action="store_true", help="two axes instead of three")
    parser.add_argument("--sync", type=int, nargs="*", default=[], metavar="RUNS", help="sizes of studies to ship")
    parser.add_argument("--sync-runs", type=int, default=200, help="runs to compare with MLflow's own cost; 0: none")
    parser.add_argument("--stacks", type=int, default=200, help="stacks for the parent's memory; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="h2h-large-") as scratch:
        folder = options.folder or Path(scratch)
        print(machine() + "\n")
        costs = {}
        for runs in options.runs:
            shape = (StudySize.crossed if options.crossed else StudySize.product)(runs)
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
    """Return the cost of every command on a study."""
    costs = {
        "plan": best(home, rounds, "plan", "large.yaml"),
        "plan, nothing run yet": best(home, rounds, "plan", "large.yaml", "--runs", "none"),
        "status": best(home, rounds, "status", "large.yaml"),
        "report": best(home, rounds, "report", "large.yaml"),
    }
    if sync:
        with tempfile.TemporaryDirectory(dir=home, prefix="store-") as store:
            arguments = ("sync", "large", "--uri", f"sqlite:///{store}/mlflow.db")
            costs["sync"] = best(home, 1, *arguments)
            costs["sync, nothing new"] = best(home, 1, *arguments)
    return costs


def best(home: Path, rounds: int, *arguments: str) -> Cost:
    """Return the minimum of each cost over some rounds, since other processes can only add to it."""
    costs = [process(home, *arguments) for _ in range(rounds)]
    return Cost(*(min(getattr(cost, name) for cost in costs) for name in ("wall", "processor", "memory")))


def process(home: Path, *arguments: str) -> Cost:
    """Run a command as a new process and return its cost."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_") and k != "PYTHONDONTWRITEBYTECODE"
    }
    # The peak memory of a forked process includes that of its parent, which must therefore be small.
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, sys.executable, "-m", "headtohead.cli", *arguments],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"h2h {' '.join(arguments)} failed: {done.stderr}")
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
    """Print the costs, and the growth of processor time from the previous size."""
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
    """Ship runs, repeat the same MLflow calls alone, and return both costs and their ratio."""
    home = next(home for size in sorted(sizes) if size >= runs for home in folder.glob(f"*-{size}"))
    study = TrackedStudy.read(home / "runs" / "large")
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
        f"sync: {runs} runs at {whole_ms:.0f} ms of processor time each; MLflow's calls alone: "
        f"{bare_ms:.0f} ms; ratio {whole_ms / bare_ms:.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f} over turns of {TURN} runs)"
    )


def timed(action: Any) -> float:
    """Return the processor time of a call, in seconds."""
    began = time.process_time()
    action()
    return time.process_time() - began


class Recorder:
    """MLflow's client, with a record of every call and its result."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            self.calls.append((name, arguments, options, result))
            return result

        return call


class Bare:
    """Repeats recorded calls on a second store, with the ids of the second store."""

    def __init__(self, store: Store, experiment: str, parent: str) -> None:
        self.client = store.client
        own = store.experiment("large")
        self.ids = {experiment: own, parent: self.client.create_run(own).info.run_id}

    def make(self, calls: Sequence[tuple[str, tuple[Any, ...], dict[str, Any], Any]]) -> None:
        for name, arguments, options, result in calls:
            repeated = getattr(self.client, name)(
                *(self._with_own_ids(value) for value in arguments),
                **{key: self._with_own_ids(value) for key, value in options.items()},
            )
            if name == "create_run":
                self.ids[result.info.run_id] = repeated.info.run_id
            elif name == "create_logged_model":
                self.ids[result.model_id] = repeated.model_id

    def _with_own_ids(self, value: Any) -> Any:
        from mlflow.entities import LoggedModelOutput, Metric

        if isinstance(value, str):
            return self.ids.get(value, value)
        if isinstance(value, list):
            return [self._with_own_ids(item) for item in value]
        if isinstance(value, Metric) and value.model_id:
            return Metric(value.key, value.value, value.timestamp, value.step, model_id=self.ids[value.model_id])
        if isinstance(value, LoggedModelOutput):
            return LoggedModelOutput(self.ids[value.model_id], value.step)
        return value


def parents_memory(folder: Path, stacks: int) -> str:
    """Train many stacks of one step each and return the parent's memory as stacks end."""
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
                # Members of a stack cannot differ in the batch size, so that every run is a stack.
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
    """Records the memory of Python's objects and of the process whenever a stack ends."""

    def __init__(self) -> None:
        self.after: list[tuple[int, int]] = []
        self.process = psutil.Process()

    def start(self, folders: Sequence[Any]) -> None:
        tracemalloc.start()

    def ended(self, folder: Any, code: int) -> None:
        gc.collect()
        self.after.append((tracemalloc.get_traced_memory()[0], self.process.memory_info().rss))


def machine() -> str:
    """Return the processor, the package versions and the command."""
    processors = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "pandas", "matplotlib", "mlflow"))
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return (
        f"{processors[0] if processors else platform.machine()}, {os.cpu_count()} cores; Python "
        f"{platform.python_version()}, {packages}; `{command}`"
    )


if __name__ == "__main__":
    main()
