"""Soak test: random kills, a slow and failing MLflow server, and two parents that compete for an experiment.

    python benchmarks/soak.py [--kills 100] [--seed 0] [--write docs/internals/soak.md]

A round trains a small study in a folder of its own. Two ``h2h run`` processes train the same experiment, and a proxy
delays or closes connections to a real MLflow server at random times. The script kills (SIGKILL) random processes of the
round's target at random moments, and restarts killed parents with the same command. Then both commands finish and
``h2h sync`` logs the rest. The round is compared with an undisturbed study: weights, metrics, translations and
attention maps bit for bit, and the content of MLflow.

Everything random depends on ``--seed``, except how processes interleave. After a difference the folder is kept, and the
script prints where the logs are. Exit code 1: a round lost or changed something.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.numpy import load_file
from stacks import machine

from headtohead import files
from headtohead.storage.run_directory import RunDirectory
from headtohead_mlflow.run_page import RUN_HASH_TAG
from headtohead_mlflow.serving import server
from headtohead_mlflow.store import load_mlflow, open_store

EXPERIMENT = """\
question: Does the study survive?
base:
  data: {dataset: toy-grammar, size: 200}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0.1}
  train: {steps: 120, batch_tokens: 128, lr: 0.005, evaluate_every: 5, checkpoint_seconds: 0.2}
baseline: {positional: sinusoidal}
design:
  - product: {positional: [sinusoidal, rotary]}
seeds: 2
"""

# Training of some ten seconds without load, so that kills hit it and the shipper logs active runs.
SLOW = '''\
"""Pause at every evaluation."""
import time

import headtohead as h2h


@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    time.sleep({pause})
'''

ANY = "any of these"
KINDS = ("parent", "worker", "shipper", "fork server", "whole tree")
TARGETS = (ANY, *KINDS)
KILLS_PER_ROUND = 8
FINISH_SECONDS = 240.0
"""Time limit for a command that finishes a study, and for the shipper of another command that it waits for."""

WEATHER_SECONDS = 1.5
"""Mean time between changes of the server's behaviour."""


class Proxy:
    """A TCP proxy in front of the MLflow server, which delays data or closes connections at random times."""

    def __init__(self, server: int, choices: random.Random) -> None:
        self.choices = choices
        self.mode = "up"
        self.stormy = False
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        for work in (self._accept, self._change):
            threading.Thread(target=work, daemon=True).start()

    @contextmanager
    def storm(self) -> Iterator[None]:
        """Be slow or down at random times during the block."""
        self.stormy = True
        try:
            yield
        finally:
            self.stormy, self.mode = False, "up"

    def close(self) -> None:
        """Stop accepting connections."""
        self._listening.close()

    def _change(self) -> None:
        while True:
            time.sleep(self.choices.uniform(0, 2 * WEATHER_SECONDS))
            self.mode = self.choices.choice(("up", "up", "slow", "down")) if self.stormy else "up"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            if self.mode == "down":
                return
            with closing(socket.create_connection(("127.0.0.1", self._server))) as server:
                self._relay(client, server)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        while self.mode != "down":
            for ready in select.select(list(other), [], [], 0.2)[0]:
                data = ready.recv(65536)
                if not data:
                    return
                if self.mode == "slow":
                    time.sleep(0.3)
                if self.mode == "down":  # the request arrived, its answer does not, or the reverse
                    return
                other[ready].sendall(data)


@dataclass
class Study:
    """A round's folder, its parents, and all processes that belong to it."""

    folder: Path
    uri: str
    environment: dict[str, str]
    pause: float
    parents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def command(self) -> list[str]:
        return ["run", f"{self.name}.yaml", "--plugin", "slow.py", "--workers", "2"]

    @property
    def experiment(self) -> Path:
        return self.folder / "runs" / self.name

    def write(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / f"{self.name}.yaml").write_text(EXPERIMENT)
        (self.folder / "slow.py").write_text(SLOW.format(pause=self.pause))

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "headtohead.cli", *command],
                cwd=self.folder,
                env=self.environment | {"MLFLOW_TRACKING_URI": self.uri},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_parent(self) -> None:
        self.parents.append(self.start(*self.command))

    def running_parents(self) -> list[psutil.Process]:
        return [psutil.Process(parent.pid) for parent in self.parents if parent.poll() is None]

    def find(self, target: str) -> list[list[psutil.Process]]:
        """Return the groups of processes that a kill of the target can hit."""
        found: list[list[psutil.Process]] = []
        for parent in self.running_parents():
            with suppress(psutil.Error):
                children = parent.children()
                servers = [
                    child for child in children if is_python(child, "multiprocessing.forkserver")
                ]
                if target == "parent":
                    found.append([parent])
                elif target == "whole tree":
                    found.append([parent, *parent.children(recursive=True)])
                elif target == "fork server":
                    found += [[server] for server in servers]
                elif target == "worker":
                    found += [[worker] for server in servers for worker in server.children()]
                else:
                    found += [
                        [child]
                        for child in children
                        if is_python(child, "headtohead.tracking.shipper")
                    ]
        return found

    def kill(self, target: str, choices: random.Random) -> bool:
        """Kill the processes of a random group of the target; return whether there was one."""
        groups = self.find(target)
        if not groups:
            return False
        for process in choices.choice(groups):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        return True

    def finish(self) -> list[str]:
        """Let the parents finish, repeat the command if none of them did, and ship; return what went wrong."""
        problems = []
        end = time.monotonic() + FINISH_SECONDS
        for parent in self.parents:
            with suppress(subprocess.TimeoutExpired):
                parent.wait(max(0.1, end - time.monotonic()))
            if parent.poll() is None:
                problems.append(f"process {parent.pid} did not end within {FINISH_SECONDS:.0f} s")
                parent.kill()
        commands = [["sync"]]
        if all(parent.poll() != 0 for parent in self.parents):
            commands.insert(0, self.command)
        for command in commands:
            process = self.start(*command)
            try:
                code = process.wait(2 * FINISH_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = None
            if code != 0:
                last = files.last_line(self.folder / "output.log")
                problems.append(f"h2h {command[0]} ended with {code}: {last}")
        return problems

    def runs(self) -> dict[str, Path]:
        return {
            path.parent.name: path.parent for path in sorted(self.experiment.glob("*/run.json"))
        }


def is_python(process: psutil.Process, module: str) -> bool:
    """Return whether a process runs a Python module."""
    with suppress(psutil.Error):
        return module in " ".join(process.cmdline())
    return False


# -- comparison --------------------------------------------------------------------------------------


def content(run: Path) -> dict[str, Any]:
    """Return everything in a run directory that must not depend on kills."""
    results = files.read_json(run / "results.json") if (run / "results.json").exists() else {}
    metrics = {k: v for k, v in results.get("metrics", {}).items() if not k.startswith("system/")}
    histories: dict[tuple[int, str], float | None] = {}
    for line in RunDirectory(run).history():
        if line is not None:
            histories |= {
                (line.step, name): value
                for name, value in line.values.items()
                if not name.startswith("system/")
            }
    table = run / "translations.tsv"
    return {
        "state": files.read_json(run / "status.json")["state"],
        "metrics": metrics | {"buckets": results.get("buckets")},
        "histories": histories,
        "translations": table.read_bytes() if table.exists() else None,
        "weights": tensors(run / "checkpoint.safetensors"),
        "maps": tensors(run / "attention" / "maps.safetensors"),
    }


def tensors(path: Path) -> dict[str, tuple[tuple[int, ...], bytes]] | None:
    if not path.exists():
        return None
    return {
        name: (np.shape(value), np.asarray(value).tobytes())
        for name, value in load_file(path).items()
    }


def logged(study: Study) -> tuple[dict[str, dict[str, list[tuple[int, float]]]], int]:
    """Return histories by run name and metric in MLflow, and the number of runs beyond one per run hash."""
    store = open_store(study.uri, create=False)
    client = store.client
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    extra = 0
    names = {
        files.read_json(path / "run.json")["run_hash"]: name for name, path in study.runs().items()
    }
    experiment = client.get_experiment_by_name(study.name)
    assert experiment is not None
    for run in store.runs(experiment.experiment_id):
        name = names[run.data.tags[RUN_HASH_TAG]]
        extra += name in found
        histories = {
            key: [
                (metric.step, metric.value)
                for metric in client.get_metric_history(run.info.run_id, key)
            ]
            for key in run.data.metrics
        }
        found[name] = {"status": [(0, float(run.info.status == "FINISHED"))]} | histories
    return found, extra


@dataclass
class Outcome:
    """The result of a round: counts, and a line for every difference."""

    lost: int = 0
    unequal: int = 0
    repeated: int = 0
    lines: list[str] = field(default_factory=list)


def compare(study: Study, reference: Study, reference_logged: dict[str, Any]) -> Outcome:
    """Compare a round with the undisturbed study."""
    outcome = Outcome()
    ours, theirs = study.runs(), reference.runs()
    for name, path in theirs.items():
        if name not in ours:
            outcome.lost += 1
            outcome.lines.append(f"{name}: no run directory")
            continue
        mine, undisturbed = content(ours[name]), content(path)
        for part, value in undisturbed.items():
            if mine[part] != value:
                outcome.lost += mine[part] is None
                outcome.unequal += mine[part] is not None
                outcome.lines.append(f"{name}: {part} differ")
    found, extra = logged(study)
    if extra:
        outcome.repeated += extra
        outcome.lines.append(f"MLflow: {extra} repeated runs")
    for name, histories in reference_logged.items():
        for key, points in histories.items():
            got = found.get(name, {}).get(key, [])
            again = len(got) - len({step for step, _ in got})
            missing = len({step for step, _ in points} - {step for step, _ in got})
            measured = key.startswith("system/")
            differ = (
                not measured and len(dict(points).items() ^ dict(got).items()) > 0 and not missing
            )
            outcome.repeated += again
            outcome.lost += missing
            outcome.unequal += differ
            if again or missing or differ:
                outcome.lines.append(
                    f"MLflow: {name} {key}: {again} repeated steps, {missing} missing steps, equal: {not differ}"
                )
    return outcome


# -- rounds ------------------------------------------------------------------------------------------


def play(
    study: Study, target: str, kills: int, choices: random.Random, proxy: Proxy
) -> Counter[str]:
    """Kill processes of a study while two parents train it; return the kills by target."""
    study.write()
    done: Counter[str] = Counter()
    end = time.monotonic() + FINISH_SECONDS
    with proxy.storm():
        study.start_parent()
        time.sleep(choices.uniform(0, 2))
        study.start_parent()
        while sum(done.values()) < kills and time.monotonic() < end:
            # Starts take some seconds; without pauses no kill would hit training.
            time.sleep(choices.choice((choices.uniform(0.2, 2), choices.uniform(2, 7))))
            chosen = choices.choice(KINDS) if target == ANY else target
            done[target] += study.kill(chosen, choices)
            while len(study.running_parents()) < 2 and not finished(study):
                study.start_parent()
            if finished(study):
                break
    return done


def finished(study: Study) -> bool:
    """Return whether all runs are DONE and no parent is left to kill."""
    statuses = list(study.experiment.glob("*/status.json"))
    return not study.running_parents() and bool(statuses)


def report(kills: Counter[str], outcomes: dict[str, Outcome], rounds: Counter[str]) -> str:
    """Return the result table in Markdown."""
    lines = [
        "| killed | kills | studies | lost | unequal | repeated steps |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for target in TARGETS:
        if rounds[target]:
            outcome = outcomes[target]
            lines.append(
                f"| {target} | {kills[target]} | {rounds[target]} "
                f"| {outcome.lost} | {outcome.unequal} | {outcome.repeated} |"
            )
    total = [
        sum(getattr(outcome, name) for outcome in outcomes.values())
        for name in ("lost", "unequal", "repeated")
    ]
    lines.append(
        f"| **total** | {sum(kills.values())} | {sum(rounds.values())} | "
        + " | ".join(map(str, total))
        + " |"
    )
    return "\n".join(lines)


def page(table: str, options: argparse.Namespace, minutes: float) -> str:
    """Return the page with the result table."""
    return f"""# Soak test

In every round of `benchmarks/soak.py`, two `h2h run` processes compete for the same small study, a proxy delays or
closes connections to a real MLflow server, and random processes are killed with SIGKILL and started again. The finished
study is compared with an undisturbed one.

- **lost**: missing run directories, files or points in MLflow.
- **unequal**: weights, metrics, histories, translations, attention maps or values in MLflow that are not bit-for-bit
  equal.
- **repeated steps**: two points of an MLflow history with the same step, or two MLflow runs of the same run.

{table}

Measured with `python benchmarks/soak.py --kills {options.kills} --seed {options.seed}` in {minutes:.0f} minutes on
{machine(torch.device("cpu"))}, with torch {torch.__version__}. *Whole tree*: a parent and all its descendants.
*Any of these*: each kill has a random target.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pause", type=float, default=0.15, help="seconds that each evaluation takes longer"
    )
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="TARGET"
    )
    parser.add_argument("--write", type=Path, help="Markdown file for the result table")
    parser.add_argument(
        "--folder", type=Path, help="folder of the studies; default: a temporary folder"
    )
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="h2h-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    kills, rounds, outcomes = soak(options, folder)
    table = report(kills, outcomes, rounds)
    print(table)
    if options.write:
        files.write_text(options.write, page(table, options, (time.monotonic() - began) / 60))
    if any(outcome.lines for outcome in outcomes.values()):
        print(
            f"\nThe studies with differences are kept in {folder}. In each of them, see output.log (the commands), "
            "runs/*/shipper-mlflow.log, runs/*/.stacks/*/worker.log and runs/*/*/status.json; "
            f"the MLflow store is {folder}/mlflow.db."
        )
        return 1
    if not options.folder:
        shutil.rmtree(folder)
    return 0


def soak(
    options: argparse.Namespace, folder: Path
) -> tuple[Counter[str], Counter[str], dict[str, Outcome]]:
    """Play rounds until the number of kills is reached."""
    load_mlflow()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_"))}
    variables = inherited | {
        "H2H_CACHE": str(folder / "cache"),
        "H2H_TRACKING_SECONDS": str(FINISH_SECONDS),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    choices = random.Random(options.seed)
    kills: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    outcomes = {target: Outcome() for target in TARGETS}
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with server(f"sqlite:///{folder}/mlflow.db", port), closing(Proxy(port, choices)) as proxy:
        reference = Study(folder / "undisturbed", f"http://127.0.0.1:{port}", variables, 0.0)
        reference.write()
        problems = reference.finish()
        if problems:
            raise SystemExit(
                f"the undisturbed study failed: {problems}; see {reference.folder}/output.log"
            )
        expected, _ = logged(reference)
        planned = max(1, round(options.kills / KILLS_PER_ROUND))
        while (left := options.kills - sum(kills.values())) > 0:
            number = sum(rounds.values()) + 1
            target = options.targets[(number - 1) % len(options.targets)]
            study = Study(folder / f"round-{number}", proxy.uri, variables, options.pause)
            wanted = math.ceil(left / max(1, planned - number + 1))
            done = play(study, target, wanted, choices, proxy)
            problems = study.finish()
            outcome = compare(study, reference, expected)
            outcome.lines = [*problems, *outcome.lines]
            outcome.lost += len(problems)
            kills, rounds[target] = kills + done, rounds[target] + 1
            merge(outcomes[target], outcome)
            print(
                f"round {number}: {done[target]} kills of {target}: {len(outcome.lines)} differences",
                flush=True,
            )
            for line in outcome.lines:
                print(f"  {line}", flush=True)
            if not outcome.lines:
                shutil.rmtree(study.folder)
    return kills, rounds, outcomes


def merge(total: Outcome, outcome: Outcome) -> None:
    """Add the counts of an outcome to a total."""
    total.lost += outcome.lost
    total.unequal += outcome.unequal
    total.repeated += outcome.repeated
    total.lines += outcome.lines


if __name__ == "__main__":
    sys.exit(main())
