"""Start-up time: from the command to the first step, and from a stack to the next stack.

    python benchmarks/start.py [--rounds 5]

The script runs ``h2h run`` with two stacks in sequence in one process, with prepared data. A
listener records the times of events; the first evaluation follows the first step. In between, the
script measures ``python -c "import torch"``, the lower limit of every command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LISTENER = """
import json, os, time
import headtohead as h2h

def note(what):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps([what, time.time()]) + "\\n")

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if step == 1:
        note("first step")

@h2h.plugin.hookimpl
def on_run_end(run, state):
    note("end")
"""

STUDY = """
question: How long does the start take?
base:
  data: {dataset: toy-grammar}
  model: {d_model: 32, heads: 2, layers: 1, d_ff: 64}
  train: {steps: 20, batch_tokens: 512, evaluate_every: 1}
baseline: {positional: sinusoidal}
design: [{product: {attention: [split-heads, single-head]}}]
seeds: 2
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "study.yaml").write_text(STUDY)
        (folder / "listener.py").write_text(LISTENER)
        rows = [measure(folder, number) for number in range(options.rounds + 1)][1:]
    names = ("import torch", "first step", "first step, untracked", "next stack")
    print("| " + " | ".join(f"{name}, s" for name in names) + " |")
    print("|" + "---:|" * len(names))
    for row in rows:
        print("| " + " | ".join(f"{seconds:.2f}" for seconds in row) + " |")
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    print("| " + " | ".join(f"**{seconds:.2f}**" for seconds in medians) + " |")


def measure(folder: Path, number: int) -> tuple[float, float, float, float]:
    began = time.time()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    loading = time.time() - began
    first, gap = command(folder, f"tracked-{number}", ())
    bare, _ = command(folder, f"bare-{number}", ("--no-tracking",))
    return loading, first, bare, gap


def command(folder: Path, runs: str, arguments: tuple[str, ...]) -> tuple[float, float]:
    """Run the study and return the seconds to the first step, and from a stack to the next stack."""
    notes = folder / f"{runs}.jsonl"
    environment = os.environ | {
        "NOTES": str(notes),
        "H2H_CACHE": str(folder / "cache"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.time()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "headtohead.cli",
            "run",
            "study.yaml",
            "--runs",
            runs,
            "--plugin",
            "listener.py",
            "--workers",
            "1",
            *arguments,
        ],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    starts = [moment for event, moment in lines if event == "first step"]
    ends = [moment for event, moment in lines if event == "end"]
    # Each stack has two runs, whose events have nearly equal times.
    return starts[0] - began, starts[2] - ends[1]


if __name__ == "__main__":
    main()
