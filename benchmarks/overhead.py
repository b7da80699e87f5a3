"""What the harness and tracking add to the training time of a run of about a minute.

    python benchmarks/overhead.py [--seconds 60] [--rounds 3]

Both sides train the same stack of six for the same steps, in turn. Bare: StackTraining alone, no
files. Whole: ``h2h run`` in a process of its own, with evaluations logged and synced, resume
points, status, progress, and the shipper writing to a new MLflow store at the same time. Compared
is the time from the first evaluation to the last: steps, evaluations and whatever is added.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml

from headtohead.data import cache_root, prepare
from headtohead.experiment.resolve import resolve
from headtohead.plugins import current
from headtohead.training.loop import StackTraining
from headtohead.training.memory import keep_freed_memory

SEEDS = [1, 2, 3, 4, 5, 6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-tracking", action="store_true", help="the harness alone")
    options = parser.parse_args()
    more = ["--no-tracking"] if options.no_tracking else []
    torch.set_num_threads(1)
    keep_freed_memory()
    steps = max(20, round(options.seconds / bare(60) * 54))
    print(f"{steps} steps of a stack of {len(SEEDS)}", flush=True)
    ratios = []
    for _ in range(options.rounds):
        alone, whole = bare(steps), full(steps, more)
        ratios.append(whole / alone)
        print(f"bare {alone:.2f} s, whole {whole:.2f} s, ratio {ratios[-1]:.4f}", flush=True)
    middle = statistics.median(ratios)
    what = "the harness adds" if options.no_tracking else "harness and tracking add"
    print(f"{what} {100 * (middle - 1):.1f} % (median of {options.rounds})")


def base(steps: int) -> dict[str, object]:
    return {
        "data": {"dataset": "toy-grammar"},
        "model": {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0},
        "train": {"steps": steps, "batch_tokens": 512, "lr": 0.005, "schedule": "cosine",
                  "warmup_steps": 50, "evaluate_every": max(1, steps // 10)},
    }  # fmt: skip


def bare(steps: int) -> float:
    config = resolve(base(steps), current())
    moments: list[float] = []
    training = StackTraining(
        config, SEEDS, prepare(config.data, cache_root()), torch.device("cpu"),
        on_evaluation=lambda evaluation: moments.append(time.time()),
    )  # fmt: skip
    training.run()
    return moments[-1] - moments[0]


def full(steps: int, more: list[str]) -> float:
    folder = Path(tempfile.mkdtemp(prefix="h2h-overhead-"))
    try:
        file = folder / "overhead.yaml"
        file.write_text(yaml.safe_dump({
            "question": "What does it add?", "base": base(steps), "seeds": len(SEEDS),
        }))  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        subprocess.run(
            [sys.executable, "-m", "headtohead.cli", "run", str(file), "--threads", "1", *more],
            cwd=folder, env=environment, check=True, capture_output=True,
        )  # fmt: skip
        runs = sorted((folder / "runs" / "overhead").glob("*-s*"))
        first, last = [], []
        for run in runs:
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            moments = [line["time"] for line in lines if "train/loss" in line["values"]]
            first.append(moments[0])
            last.append(moments[-1])
        return max(last) - min(first)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
