"""How soon training starts: from the command to the first step, and from one stack to the next.

    python benchmarks/start.py [--rounds 5] [--file experiments/quickstart.yaml]

``h2h run`` of two stacks, one after the other in one process, with the data prepared before. A
listener notes the moments: the first evaluation comes right after the first step. Beside it, in
turn, the time that ``python -c "import torch"`` takes here, which no command can be without.
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

@h2h.hookimpl
def on_evaluation(run, step, metrics):
    if step == 1:
        note("first step")

@h2h.hookimpl
def on_run_end(run, state):
    note("end")
"""

STUDY = """
question: How soon does it start?
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
        rows = [measured(folder, number) for number in range(options.rounds + 1)][1:]
    names = ("import torch", "first step", "first step, untracked", "next stack")
    print("| " + " | ".join(f"{one}, s" for one in names) + " |")
    print("|" + "---:|" * len(names))
    for row in rows:
        print("| " + " | ".join(f"{one:.2f}" for one in row) + " |")
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    print("| " + " | ".join(f"**{one:.2f}**" for one in medians) + " |")


def measured(folder: Path, number: int) -> tuple[float, float, float, float]:
    began = time.time()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    loading = time.time() - began
    first, gap = command(folder, f"tracked-{number}", ())
    bare, _ = command(folder, f"bare-{number}", ("--no-tracking",))
    return loading, first, bare, gap


def command(folder: Path, runs: str, words: tuple[str, ...]) -> tuple[float, float]:
    """Run the study; return seconds to the first step, and from one stack to the next."""
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
            *words,
        ],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    starts = [moment for what, moment in lines if what == "first step"]
    ends = [moment for what, moment in lines if what == "end"]
    # Two runs a stack: their first steps and their ends come together.
    return starts[0] - began, starts[2] - ends[1]


if __name__ == "__main__":
    main()
