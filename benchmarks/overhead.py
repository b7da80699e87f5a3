"""What the harness and tracking add to the training time of a run of about a minute.

    python benchmarks/overhead.py [--seconds 60] [--rounds 3] [--no-tracking]

Both sides train the same stack of six for the same steps, each in processes of its own. Bare:
StackTraining alone, no files. Whole: ``h2h run``, with evaluations logged and synced, resume
points, status, progress, and the shipper writing to a new MLflow store at the same time.

The two take turns of half a second, the other side's processes all stopped meanwhile, so that a
machine that grows slower or faster for a while does so for both. Compared is the time that each
was let run between its first evaluation and its last: steps, evaluations and whatever is added.
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

from headtohead.config.resolve import resolve
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
    parser.add_argument("--no-tracking", action="store_true", help="the harness alone")
    parser.add_argument("--bare", type=int, metavar="STEPS", help="train so many, for main()")
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
    what = "the harness adds" if options.no_tracking else "harness and tracking add"
    middle = statistics.median(ratios)
    print(f"{what} {100 * (middle - 1):.1f} % (median of {options.rounds})")


def one_round(steps: int, more: list[str]) -> tuple[float, float]:
    """Train both sides in turns; return the seconds that each was let train."""
    folder = Path(tempfile.mkdtemp(prefix="h2h-overhead-"))
    try:
        file = folder / "overhead.yaml"
        file.write_text(yaml.safe_dump({"question": "What does it add?", "base": base(steps), "seeds": len(SEEDS)}))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        commands = [
            [sys.executable, __file__, "--bare", str(steps)],
            # One process: two would train three runs each, at the same time.
            [sys.executable, "-m", "headtohead.cli", "run", str(file), "--threads", "1", "--workers", "1", *more],
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        sides = [subprocess.Popen(command, cwd=folder, env=environment, **pipes) for command in commands]
        turns = take_turns(sides)
        output = sides[0].communicate()[0]
        sides[1].communicate()
        if sides[0].returncode or sides[1].returncode:
            raise SystemExit("a side failed: run its command alone to see why")
        return active(turns[0], *json.loads(output)), active(turns[1], *run_moments(folder))
    finally:
        shutil.rmtree(folder)


def take_turns(sides: list[subprocess.Popen[str]]) -> list[list[tuple[float, float]]]:
    """Let one side run at a time until both have ended; return when each ran."""
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
    """Return a process and its descendants, parents first, so that none is missed as it starts.

    Finding them takes some twenty milliseconds, which must not count in a side's turn.
    """
    try:
        process = psutil.Process(side.pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def send(processes: list[psutil.Process], what: signal.Signals) -> None:
    """Signal processes, those aside that have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def active(turns: list[tuple[float, float]], first: float, last: float) -> float:
    """Return the seconds of ``turns`` that lie between two moments."""
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
    """Train without the harness; return the moments of the first and the last evaluation."""
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
    """Return the moments of the first and the last evaluation of a finished experiment."""
    moments = [
        line["time"]
        for run in (folder / "runs" / "overhead").glob("*-s*")
        for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if "train/loss" in line["values"]
    ]
    return min(moments), max(moments)


if __name__ == "__main__":
    main()
