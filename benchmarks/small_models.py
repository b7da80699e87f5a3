"""Time of a study of many small runs from the command to the report, and what it is spent on.

    python benchmarks/small_models.py [--seeds 512] [--epochs 100] [--tracking]

The study is notebook 1 (recipe scratch-en-fr) with its 5,000 rows of embeddings and output projection: two attention
styles, 512 seeds, 100 epochs of one step each. The script runs `h2h run` in a new folder and reads the records of the
runs. Phases of the command are in wall time: until the first run starts, until the last run ends, and the report. The
time of the workers is the sum over stacks, in wall time of their processes: training steps, and the rest (start,
evaluation, translation, attention maps, files).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import yaml
from stacks import machine

from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import StackFolder


def study(seeds: int, epochs: int) -> dict[str, Any]:
    """Return the content of the experiment file."""
    return {
        "question": "Do independent heads beat split heads at notebook 1's size?",
        "base": {"train": {"epochs": epochs}},
        "baseline": {"recipe": "scratch-en-fr"},
        "design": [{"product": {"attention": ["split-heads", "independent-heads"]}}],
        "seeds": seeds,
    }


def moment(text: str | None) -> float:
    """Return a time of status.json in seconds since 1970."""
    assert text is not None
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--tracking", action="store_true", help="also log to a new MLflow store")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="h2h-small-"))
    try:
        file = folder / "small.yaml"
        file.write_text(yaml.safe_dump(study(options.seeds, options.epochs)), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        command = [sys.executable, "-m", "headtohead.cli", "run", str(file)]
        began = time.time()
        subprocess.run(
            [*command, *([] if options.tracking else ["--no-tracking"])],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ended = time.time()
        print(f"{machine(torch.device('cpu'))}; torch {torch.__version__}, float32; "
              f"{'with' if options.tracking else 'without'} tracking\n")  # fmt: skip
        print("\n".join(table(folder / "runs" / "small", began, ended)))
    finally:
        shutil.rmtree(folder)


def table(experiment: Path, began: float, ended: float) -> list[str]:
    """Return the rows of the breakdown."""
    stacks = [StackFolder(path.parent) for path in sorted(experiment.glob(".stacks/*/stack.json"))]
    started, finished, training, inside = [], [], [], []
    runs = 0
    for folder in stacks:
        statuses = [run.status for run in folder.runs()]
        metrics = [run.results.metrics for run in folder.runs() if run.results is not None]
        assert len(metrics) == len(statuses), "a run has no results"
        runs += len(statuses)
        started.append(min(moment(status.started) for status in statuses))
        finished.append(max(moment(status.ended) for status in statuses))
        training.append(float(metrics[0]["system/train_seconds"] or 0.0))
        inside.append(max(float(own["system/wall_seconds"] or 0.0) for own in metrics))
    sizes = [len(folder.runs()) for folder in stacks]
    total = ended - began
    return [
        f"{runs:,} runs in {len(stacks)} stacks of {min(sizes)} to {max(sizes)}",
        "",
        "| phase | wall, s | share |",
        "|---|---:|---:|",
        *(
            f"| {name} | {seconds:.1f} | {100 * seconds / total:.0f} % |"
            for name, seconds in (
                ("plan, start of workers", min(started) - began),
                ("workers", max(finished) - min(started)),
                ("report", ended - max(finished)),
                ("all", total),
            )
        ),
        "",
        "| workers, sum over stacks | s | ms per run |",
        "|---|---:|---:|",
        *(
            f"| {name} | {seconds:.1f} | {1000 * seconds / runs:.0f} |"
            for name, seconds in (
                ("training steps", sum(training)),
                ("evaluation, maps, files", sum(inside) - sum(training)),
            )
        ),
        "",
        f"A step of a stack takes {1000 * statistics.median(training) / steps_of(stacks[0]):.1f} ms (median).",
    ]


def steps_of(folder: StackFolder) -> int:
    """Return the number of steps of a stack's runs."""
    steps = RunDirectory(folder.runs()[0].path).status.steps
    assert steps
    return steps


if __name__ == "__main__":
    main()
