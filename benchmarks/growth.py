"""Growth of cost with members, width, length, pairs and runs: log-log curves and their slopes.

    python benchmarks/growth.py [--file PAIRS] [--rounds 7] [--picture docs/images/growth.png]

1. Training step against the members of the stack, the width of the model (with a feed-forward width
   four times as large) and the length of the sentences; the points of a panel alternate.
2. Data preparation without a cache, including reading the file, against random pairs of --file.
3. h2h plan, status and report against the runs of a study, from the table in
   benchmarks/results/large_study.md.

The script fits time ~ n^k by least squares on the logarithms and prints k with its standard error,
and k between the last two points, where constant costs matter least. One CPU thread. --points FILE
stores the measured points; an existing file replaces the measurement.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plain import Size
from scipy import stats
from stacks import SIZES, machine, stack_step

from headtohead.config.resolve import resolve
from headtohead.data import prepare
from headtohead.figures.style import INK, MARKERS, PALETTE, drawing, to_png
from headtohead.plugins.registry import current
from headtohead.training.memory import keep_freed_memory

LARGE_STUDY = Path(__file__).parent / "results" / "large_study.md"
PANELS = {
    "members": "members of a stack",
    "width": "width of the model",
    "length": "tokens of a sentence",
    "pairs": "pairs prepared",
    "runs": "runs of a study",
}
MEMBERS = {"notebook 1": 64, "quickstart": 64, "tatoeba-heads": 16}
"""Largest number of members of each size."""
WIDTHS = (16, 32, 64, 128, 256, 512)
LENGTHS = (4, 8, 16, 32, 64, 128)
PAIRS = (1000, 3000, 10_000, 30_000, 100_000)

WIDE = Size("512 tokens, 1 layer", 0, 2, 1, 0, 1000, 1000, 64, 8, 8)
LONG = Size("64 wide, 1 layer", 64, 2, 1, 256, 1000, 1000, 16, 0, 0)

MIN_SECONDS = 0.03
"""Shorter steps are repeated for at least this time."""


@dataclass(frozen=True)
class Curve:
    """Processor and wall seconds as a function of a number."""

    panel: str
    name: str
    numbers: Sequence[float]
    processor: Sequence[float]
    wall: Sequence[float]


@dataclass(frozen=True)
class Growth:
    """The exponent k of time ~ n^k, its standard error, and k between the last two points."""

    exponent: float
    error: float
    last: float

    @classmethod
    def fit(cls, numbers: Sequence[float], seconds: Sequence[float]) -> Growth:
        """Fit a line to the logarithms."""
        x, y = [math.log(number) for number in numbers], [math.log(time_) for time_ in seconds]
        fit = stats.linregress(x, y)
        return cls(float(fit.slope), float(fit.stderr), (y[-1] - y[-2]) / (x[-1] - x[-2]))

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="tab-separated pairs, .xz or not")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--largest", type=float, default=math.inf, help="largest number, for trials")
    parser.add_argument("--points", type=Path, help="JSON file of the measured points")
    parser.add_argument("--picture", type=Path, help="PNG file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.points and options.points.exists():
        curves = [Curve(**fields) for fields in json.loads(options.points.read_text())]
    else:
        curves = [*steps(options.rounds, options.largest)]
        if options.file:
            curves.append(preparing(options.file, [n for n in PAIRS if n <= options.largest]))
    if options.points:
        options.points.write_text(json.dumps([asdict(curve) for curve in curves], indent=1))
    curves += commands(LARGE_STUDY.read_text(encoding="utf-8"))
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}, 1 thread, float32; "
        f"medians of {options.rounds} rounds\n"
    )
    print("\n".join(table(curves)))
    if options.picture:
        options.picture.write_bytes(to_png(growth_figure(curves)))


def steps(rounds: int, largest: float, members: Mapping[str, int] = MEMBERS) -> Iterator[Curve]:
    """Yield the curves of training steps."""
    for size in SIZES:
        if most := min(largest, members.get(size.name, 0)):
            counts = [2**n for n in range(int(math.log2(most)) + 1)]
            yield curve("members", size.name, {n: (size, n) for n in counts}, rounds)
    wide = {n: (replace(WIDE, d_model=n, d_ff=4 * n), 1) for n in WIDTHS if n <= largest}
    yield curve("width", WIDE.name, wide, rounds)
    long = {n: (replace(LONG, source_time=n, target_time=n), 1) for n in LENGTHS if n <= largest}
    yield curve("length", LONG.name, long, rounds)


def curve(panel: str, name: str, points: Mapping[int, tuple[Size, int]], rounds: int) -> Curve:
    """Measure a training step at every point, in alternating rounds."""
    actions = [stack_step(size, members, torch.device("cpu")) for size, members in points.values()]
    times: list[list[tuple[float, float]]] = [[] for _ in actions]
    repeats = []
    for action in actions:
        action()
        repeats.append(max(1, math.ceil(MIN_SECONDS / timed(action, 1)[0])))
    for _ in range(rounds):
        for times_of_action, action, count in zip(times, actions, repeats, strict=True):
            times_of_action.append(timed(action, count))
    medians = [[statistics.median(clock) for clock in zip(*rows, strict=True)] for rows in times]
    processor, wall = zip(*medians, strict=True)
    return Curve(panel, name, list(points), processor, wall)


def timed(action: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Return the mean processor and wall seconds of a call."""
    processor, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        action()
    return (time.process_time() - processor) / calls, (time.perf_counter() - wall) / calls


def preparing(file: Path, counts: Sequence[int], rounds: int = 2) -> Curve:
    """Prepare increasing numbers of random pairs of a file, each time without a cache."""
    read = lzma.open if file.suffix == ".xz" else open
    with read(file, "rt", encoding="utf-8-sig") as lines:
        pairs = [line.rstrip("\n") for line in lines]
    random.Random(1).shuffle(pairs)
    if max(counts) > len(pairs):
        raise SystemExit(f"{file} has {len(pairs):,} pairs; --largest {len(pairs)} limits the measurement to them")
    best = []
    with tempfile.TemporaryDirectory(prefix="h2h-growth-") as scratch:
        for count in counts:
            part = Path(scratch) / f"{count}.tsv"
            part.write_text("\n".join(pairs[:count]) + "\n", encoding="utf-8")
            base = {"data": {"dataset": "tatoeba", "file": str(part)}, "train": {"steps": 1}}
            data = resolve(base, current()).data
            # The very first preparation imports modules, and does not count.
            empty = [Path(scratch) / f"{count}-{turn}" for turn in range(rounds + (not best))]
            times = [timed(partial(prepare, data, cache), 1) for cache in empty][-rounds:]
            best.append([min(clock) for clock in zip(*times, strict=True)])
    processor, wall = zip(*best, strict=True)
    return Curve("pairs", "prepared from nothing", list(counts), processor, wall)


def commands(page: str) -> list[Curve]:
    """Return the curves of the table that benchmarks/large_study.py printed."""
    rows = re.findall(r"^\| (plan|status|report) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    if not rows:
        raise SystemExit("benchmarks/results/large_study.md has no table of benchmarks/large_study.py")
    return [
        Curve(
            "runs",
            f"h2h {command}",
            *zip(
                *(
                    (float(runs.replace(",", "")), float(processor), float(wall))
                    for name, runs, wall, processor in rows
                    if name == command
                ),
                strict=True,
            ),
        )
        for command in dict.fromkeys(row[0] for row in rows)
    ]


def table(curves: Iterable[Curve]) -> Iterator[str]:
    """Return the exponents as lines of a Markdown table."""
    yield "| against | curve | from | to | processor time | exponent | last two points | exponent of wall time |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for curve in curves:
        numbers, seconds = curve.numbers, curve.processor
        growth, wall = Growth.fit(numbers, seconds), Growth.fit(numbers, curve.wall)
        yield (
            f"| {PANELS[curve.panel]} | {curve.name} | {numbers[0]:,.0f} | {numbers[-1]:,.0f} "
            f"| {format_seconds(seconds[0])} to {format_seconds(seconds[-1])} | {growth} | {growth.last:.2f} "
            f"| {wall} |"
        )


def format_seconds(seconds: float) -> str:
    """Return a time with three digits and its unit."""
    if seconds >= 1000:
        return f"{seconds:,.0f} s"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def growth_figure(curves: Sequence[Curve]) -> Figure:
    """Draw a log-log panel for each number, with the fitted lines."""
    panels = [name for name in PANELS if any(curve.panel == name for curve in curves)]
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    with drawing():
        figure = Figure(figsize=(3.6 * across, 3.3 * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for axes, name in zip(grid.flat, panels, strict=False):
            draw_panel(axes, name, [curve for curve in curves if curve.panel == name])
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
    return figure


def draw_panel(axes: Axes, panel: str, curves: Sequence[Curve]) -> None:
    """Draw the points of each curve and the fitted line."""
    for index, curve in enumerate(curves):
        growth = Growth.fit(curve.numbers, curve.processor)
        middle = [math.exp(statistics.fmean(map(math.log, values))) for values in (curve.numbers, curve.processor)]
        ends = (curve.numbers[0], curve.numbers[-1])
        line = [middle[1] * (end / middle[0]) ** growth.exponent for end in ends]
        axes.plot(ends, line, color=PALETTE[index], linewidth=1.2)
        axes.plot(
            curve.numbers,
            curve.processor,
            MARKERS[index],
            color=PALETTE[index],
            markersize=5,
            label=f"{curve.name}\nexponent {growth}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(PANELS[panel], color=INK)
    axes.set_ylabel("processor time")
    numbers = max((curve.numbers for curve in curves), key=len)
    ticks = numbers[:: 1 + (len(numbers) > 5)]
    axes.set_xticks(ticks, [f"{number:,.0f}" for number in ticks])
    axes.yaxis.set_major_formatter(lambda seconds, index: format_seconds(seconds))
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** (0.3 * len(curves)))  # room for the legend
    axes.legend(loc="upper left", handletextpad=0.3, borderaxespad=0.2)


if __name__ == "__main__":
    main()
