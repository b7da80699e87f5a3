"""How long a large study takes on 1, 8 and 64 workers, from throughput that was measured.

    python benchmarks/scaling.py [--runs 10000] [--workers 1 8 64] [--results CSV ...] [--gpu TABLE]
                                 [--steps 1000] [--start 3] [--write docs/how-to/scale-out.md]

A worker is one GPU, or the cores of one stack on a CPU. Throughput comes from

1. the results.csv of reports of finished studies: seconds of each stack from its start to its
   last score, as its worker measured them;
2. the table that `python benchmarks/gpu.py --out docs/internals/tables/gpu.md` writes on a machine with a
   GPU: milliseconds a step, times the steps of a run. Without it its rows say "not measured".

The estimate: runs are put into stacks, the stacks are dealt out to workers, and each round of them
takes as long as one stack: ceil(ceil(runs / members) / workers) · (start + seconds of a stack).
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
GPU = ROOT / "docs" / "internals" / "tables" / "gpu.md"
BEGIN, END = "<!-- benchmarks/scaling.py -->", "<!-- end -->"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Throughput:
    """What one worker does: ``members`` runs in ``seconds``; no seconds where nobody measured."""

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
    parser.add_argument("--steps", type=int, default=1000, help="of a run, for the table of GPUs")
    parser.add_argument("--start", type=float, default=3.0, help="assumed seconds before a stack trains")
    parser.add_argument("--write", type=Path, help="the page whose table is made anew")
    options = parser.parse_args()
    measured = [*map(from_results, options.results), *from_gpu(options.gpu, options.steps)]
    text = "\n".join(table(measured, options.runs, options.workers, options.start))
    print(text)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(with_table(page, text), encoding="utf-8")


def with_table(page: str, text: str) -> str:
    """Return the page with the table between its marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page has no '{BEGIN}' with an '{END}' behind it")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def estimate(runs: int, members: int, seconds: float, workers: int, start: float = 0.0) -> float:
    """Return the seconds of a study on so many workers of one kind."""
    stacks = math.ceil(runs / members)
    return math.ceil(stacks / workers) * (start + seconds)


def from_results(path: Path) -> Throughput:
    """Read a finished study: runs of a variant with equal seconds of training were one stack."""
    stacks: dict[tuple[str, str], list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["state"] == "DONE" and not row["reused_from"]:
                stack = row["variant"], row["system/train_seconds"]
                stacks.setdefault(stack, []).append(float(row["system/wall_seconds"]))
    if not stacks:
        raise SystemExit(f"{path}: no finished run of its own")
    members = round(fmean(map(len, stacks.values())))
    seconds = fmean(max(found) for found in stacks.values())
    return Throughput(path.parent.name, "one CPU core", members, seconds)


def from_gpu(path: Path, steps: int) -> Iterator[Throughput]:
    """Read the table of benchmarks/gpu.py; training alone, without scoring."""
    if not path.exists():
        for size in ("quickstart", "128/4/2/512"):
            yield Throughput(f"{size}, {steps:,} steps", "one GPU", 32, None)
        return
    row = re.compile(r"^\| (\S+) \| (\w+) \| (\d+) \| ([\d.]+) \|", re.MULTILINE)
    for size, precision, members, step in row.findall(path.read_text(encoding="utf-8")):
        name = f"{size}, {steps:,} steps, {precision}"
        yield Throughput(name, "one GPU", int(members), steps * float(step) / 1000)


def table(measured: Iterable[Throughput], runs: int, workers: list[int], start: float) -> Iterator[str]:
    """Write the estimates as Markdown."""
    heads = " | ".join(f"{count:,} workers" if count > 1 else "1 worker" for count in workers)
    yield f"| {runs:,} runs like those of | worker | stack | seconds of a stack | {heads} |"
    yield "|---|---|---:|---:|" + "---:|" * len(workers)
    for one in measured:
        cells = [
            NOT_MEASURED if one.seconds is None else spoken(estimate(runs, one.members, one.seconds, count, start))
            for count in workers
        ]
        seconds = NOT_MEASURED if one.seconds is None else f"{one.seconds:,.0f}"
        yield f"| {one.name} | {one.worker} | {one.members} | {seconds} | {' | '.join(cells)} |"


def spoken(seconds: float) -> str:
    """Write a time so that it can be read."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
