"""Time that the harness and tracking add to the training time of a run of about a minute.

    python benchmarks/overhead.py [--seconds 60] [--rounds 3] [--no-tracking]

Both sides train the same stack of six members for the same number of steps, in separate processes.
Bare: StackTraining only, without files. Whole: ``h2h run`` with metrics on disk, checkpoints,
status, progress, and the shipping process, which writes to a new MLflow store at the same time.

The sides alternate in turns of half a second, with all processes of the other side stopped, so that
a temporarily slower machine affects both sides. The script compares the running time of each side
between its first and its last evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import torch
import yaml

from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.plugins.registry import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

SEEDS = [1, 2, 3, 4, 5, 6]
TURN = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-tracking", action="store_true", help="measure the harness only")
    parser.add_argument("--bare", type=int, metavar="STEPS", help="train this number of steps; used by main()")
    options = parser.parse_args()
    if options.bare:
        print(json.dumps(bare(options.bare)))
        return
    first, last = bare(300)
    steps = max(20, round(options.seconds / (last - first) * 270))
    print(f"{steps} steps of a stack of {len(SEEDS)}", flush=True)
    ratios = []
    for _ in range(options.rounds):
        alone, whole = one_round(steps, ["--no-tracking"] if options.no_tracking else [])
        ratios.append(whole / alone)
        print(f"bare {alone:.2f} s, whole {whole:.2f} s, ratio {ratios[-1]:.4f}", flush=True)
    subject = "the harness adds" if options.no_tracking else "harness and tracking add"
    median = statistics.median(ratios)
    print(f"{subject} {100 * (median - 1):.1f} % (median of {options.rounds})")


def one_round(steps: int, more: list[str]) -> tuple[float, float]:
    """Train both sides in turns and return the running time of each."""
    folder = Path(tempfile.mkdtemp(prefix="h2h-overhead-"))
    try:
        file = folder / "overhead.yaml"
        file.write_text(yaml.safe_dump({"question": "What does it add?", "base": base(steps), "seeds": len(SEEDS)}))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        commands = [
            [sys.executable, __file__, "--bare", str(steps)],
            # A single worker, since two workers would train three runs each at the same time.
            [sys.executable, "-m", "headtohead.cli", "run", str(file), "--threads", "1", "--workers", "1", *more],
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        sides = [subprocess.Popen(command, cwd=folder, env=environment, **pipes) for command in commands]
        turns = take_turns(sides)
        output = sides[0].communicate()[0]
        sides[1].communicate()
        if sides[0].returncode or sides[1].returncode:
            raise SystemExit("a side failed; run its command alone for the error message")
        return active(turns[0], *json.loads(output)), active(turns[1], *run_moments(folder))
    finally:
        shutil.rmtree(folder)


def take_turns(sides: list[subprocess.Popen[str]]) -> list[list[tuple[float, float]]]:
    """Run the sides alternately until both have ended, and return start and end of their turns."""
    turns: list[list[tuple[float, float]]] = [[], []]
    for index in (0, 1):
        send(family(sides[index]), signal.SIGSTOP)
    while any(side.poll() is None for side in sides):
        for index, side in enumerate(sides):
            if side.poll() is not None:
                continue
            stopped = family(side)
            started = time.time()
            send(stopped, signal.SIGCONT)
            time.sleep(TURN)
            send(family(side), signal.SIGSTOP)
            turns[index].append((started, time.time()))
    return turns


def family(side: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return a process and its descendants, parents first, so that new descendants are included.

    The search takes about twenty milliseconds, which must not count in a side's turn.
    """
    try:
        process = psutil.Process(side.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def active(turns: list[tuple[float, float]], first: float, last: float) -> float:
    """Return the seconds of ``turns`` between two times."""
    return sum(max(0.0, min(end, last) - max(start, first)) for start, end in turns)


def base(steps: int) -> dict[str, object]:
    return {
        "data": {"dataset": "toy-grammar"},
        "model": {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0},
        "train": {
            "steps": steps,
            "batch_tokens": 512,
            "lr": 0.005,
            "schedule": "cosine",
            "warmup_steps": 50,
            "evaluate_every": max(1, steps // 10),
        },
    }


def bare(steps: int) -> tuple[float, float]:
    """Train without the harness and return the times of the first and the last evaluation."""
    torch.set_num_threads(1)
    keep_freed_memory()
    config = resolve(base(steps), current())
    moments: list[float] = []
    training = StackTraining(
        config,
        SEEDS,
        prepare(config.data, cache_root()),
        torch.device("cpu"),
        on_evaluation=lambda evaluation: moments.append(time.time()),
    )
    training.run()
    return moments[0], moments[-1]


def run_moments(folder: Path) -> tuple[float, float]:
    """Return the times of the first and the last evaluation of a finished experiment."""
    moments = [
        line["time"]
        for run in (folder / "runs" / "overhead").glob("*-s*")
        for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if "train/loss" in line["values"]
    ]
    return min(moments), max(moments)


if __name__ == "__main__":
    main()
