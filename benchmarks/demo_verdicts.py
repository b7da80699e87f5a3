"""Do the words of the demo's answer depend on the seeds, or on the processor?

    python benchmarks/demo_verdicts.py seeds        # train 120 seeds, judge each group of six; about an hour
    python benchmarks/demo_verdicts.py processors   # train the demo with the instructions of older processors

A group of seeds is a study of its own, with the runs of the large one. ``seeds`` prints the number of groups with each
verdict of each contrast; the answer is stable if at least 19 of 20 groups have every word of the committed report.
``processors`` trains in child processes, because libraries read the environment when they are loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

from headtohead import api

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "quickstart.yaml"
COMMITTED = EXPERIMENT.parents[1] / "reports" / "quickstart" / "answer.json"

SEEDS = 120
GROUP = 6

PROCESSORS = {
    "as it is": {},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "AVX": {
        "ONEDNN_MAX_CPU_ISA": "AVX",
        "MKL_ENABLE_INSTRUCTIONS": "AVX",
        "ATEN_CPU_CAPABILITY": "default",
    },
    "SSE4": {
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ATEN_CPU_CAPABILITY": "default",
    },
}
"""Variables that limit the instructions of oneDNN, MKL and ATen, by the name of the limit."""

Verdicts = dict[str, str]


def verdicts(answer: Path) -> Verdicts:
    """Return the verdict of every main contrast of an ``answer.json``."""
    contrasts = json.loads(answer.read_text(encoding="utf-8"))["contrasts"]
    return {contrast["name"]: contrast["verdict"] for contrast in contrasts if contrast["main"]}


def study(seeds: list[int], name: str, folder: Path) -> Verdicts:
    """Train the demo with other seeds, or take their runs from another study of the folder; return its verdicts."""
    content = yaml.safe_load(EXPERIMENT.read_text(encoding="utf-8"))
    content["seeds"] = seeds
    reports = folder / "reports"
    api.run(content, name=name, runs=folder / "runs", reports=reports, tracking=False, log=ignore)
    return verdicts(reports / name / "answer.json")


def ignore(_: object) -> None:
    """Print nothing."""


def seeds(folder: Path, number: int, group: int) -> None:
    """Print how many groups of seeds have each verdict."""
    study(list(range(1, number + 1)), "all-seeds", folder)
    counts: dict[str, Counter[str]] = {}
    num_equal = 0
    expected = verdicts(COMMITTED)
    groups = range(1, number + 1, group)
    for first in groups:
        last = first + group - 1
        found = study(list(range(first, last + 1)), f"seeds-{first}-to-{last}", folder)
        num_equal += found == expected
        for label, verdict in found.items():
            counts.setdefault(label, Counter())[verdict] += 1
    for label, of_label in counts.items():
        print(label, dict(of_label))
    print(f"{num_equal} of {len(groups)} groups have every word of {COMMITTED}")


def processors(folder: Path) -> None:
    """Print the verdicts of the demo with the instructions of each processor."""
    for name, variables in PROCESSORS.items():
        command = [
            sys.executable,
            __file__,
            "once",
            "--folder",
            str(folder / name.replace(" ", "-")),
        ]
        subprocess.run(command, env=os.environ | variables, check=True)
        print(f"above: {name}", flush=True)


def once(folder: Path) -> None:
    """Train the demo and print its verdicts."""
    for label, verdict in study(list(range(1, GROUP + 1)), "demo", folder).items():
        print(f"{label}: {verdict}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["seeds", "processors", "once"])
    parser.add_argument("--folder", type=Path, default=Path("runs/demo-verdicts"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--group", type=int, default=GROUP)
    arguments = parser.parse_args()
    if arguments.what == "seeds":
        seeds(arguments.folder, arguments.seeds, arguments.group)
    elif arguments.what == "processors":
        processors(arguments.folder)
    else:
        once(arguments.folder)
