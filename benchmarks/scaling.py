"""Estimated duration of a large study on 1, 8 and 64 workers, from measured throughput.

    python benchmarks/scaling.py [--runs 10000] [--workers 1 8 64] [--results CSV ...] [--gpu TABLE]
                                 [--steps 1000] [--start 3] [--write docs/how-to/scale-out.md]

A worker is a GPU, or the cores of a stack on a CPU. The throughput comes from

1. the results.csv of reports of finished studies: seconds of each stack from its start to its last
   score, as measured by its worker;
2. the table that `python benchmarks/gpu.py --part 2 --out benchmarks/results/gpu.md` writes on a machine with a
   GPU: milliseconds per step times the steps of a run. Without the table its rows are "not measured".

The estimate distributes stacks over workers in rounds, each as long as a stack:
ceil(ceil(runs / members) / workers) · (start + seconds of a stack).
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

ROOT = Path(__file__).parents[1]
RESULTS = [
    ROOT / "reports" / name / "results.csv"
    for name in ("masks-what-they-protect", "positions-fixed-or-learned", "tatoeba-heads")
]
GPU = ROOT / "benchmarks" / "results" / "gpu.md"
BEGIN, END = "<!-- benchmarks/scaling.py -->", "<!-- end -->"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Throughput:
    """Throughput of a worker: ``members`` runs in ``seconds``, None where not measured."""

    name: str
    worker: str
    members: int
    seconds: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--results", type=Path, nargs="*", default=RESULTS)
    parser.add_argument("--gpu", type=Path, default=GPU)
    parser.add_argument("--steps", type=int, default=1000, help="steps of a run on a GPU")
    parser.add_argument("--start", type=float, default=3.0, help="assumed seconds before a stack trains")
    parser.add_argument("--write", type=Path, help="page with the table to replace")
    options = parser.parse_args()
    measured = [*map(from_results, options.results), *from_gpu(options.gpu, options.steps)]
    text = "\n".join(table(measured, options.runs, options.workers, options.start))
    print(text)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(replace_table(page, text), encoding="utf-8")


def replace_table(page: str, text: str) -> str:
    """Return the page with a new table between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page has no '{BEGIN}' followed by '{END}'")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def estimate(runs: int, members: int, seconds: float, workers: int, start: float = 0.0) -> float:
    """Return the seconds of a study on a number of equal workers."""
    stacks = math.ceil(runs / members)
    return math.ceil(stacks / workers) * (start + seconds)


def from_results(path: Path) -> Throughput:
    """Return the throughput of a finished study.

    Runs of a variant with equal training seconds are members of the same stack.
    """
    stacks: dict[tuple[str, str], list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["state"] == "DONE" and not row["reused_from"]:
                stack = row["variant"], row["system/train_seconds"]
                stacks.setdefault(stack, []).append(float(row["system/wall_seconds"]))
    if not stacks:
        raise SystemExit(f"{path}: the study has no finished run that is not reused")
    members = round(fmean(map(len, stacks.values())))
    seconds = fmean(max(members_seconds) for members_seconds in stacks.values())
    return Throughput(path.parent.name, "one CPU core", members, seconds)


def from_gpu(path: Path, steps: int) -> Iterator[Throughput]:
    """Yield the throughput in the table of benchmarks/gpu.py, training only, without scoring."""
    if not path.exists():
        for size in ("notebook-1", "128/4/2/512"):
            yield Throughput(f"{size}, {steps:,} steps", "one GPU", 32, None)
        return
    row = re.compile(r"^\| (\S+) \| (\w+) \| (\d+) \| ([\d.]+) \|", re.MULTILINE)
    for size, precision, members, step in row.findall(path.read_text(encoding="utf-8")):
        name = f"{size}, {steps:,} steps, {precision}"
        yield Throughput(name, "one GPU", int(members), steps * float(step) / 1000)


def table(measured: Iterable[Throughput], runs: int, workers: list[int], start: float) -> Iterator[str]:
    """Return the estimates as lines of a Markdown table."""
    heads = " | ".join(f"{count:,} workers" if count > 1 else "1 worker" for count in workers)
    yield f"| {runs:,} runs like those of | worker | stack | seconds of a stack | {heads} |"
    yield "|---|---|---:|---:|" + "---:|" * len(workers)
    for throughput in measured:
        members, seconds = throughput.members, throughput.seconds
        cells = [
            NOT_MEASURED if seconds is None else format_duration(estimate(runs, members, seconds, count, start))
            for count in workers
        ]
        stack = NOT_MEASURED if seconds is None else f"{seconds:,.0f}"
        yield f"| {throughput.name} | {throughput.worker} | {members} | {stack} | {' | '.join(cells)} |"


def format_duration(seconds: float) -> str:
    """Return a duration in the largest suitable unit."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
