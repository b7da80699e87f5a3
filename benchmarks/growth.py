"""How cost grows with members, width, length, pairs and runs: curves on log-log axes, their slopes.

    python benchmarks/growth.py [--file PAIRS] [--rounds 7] [--picture docs/images/growth.png]

1. A training step against the members of its stack, the width of the model (feed-forward four times
   as wide) and the length of its sentences: all points of a panel in turn.
2. Preparing data from nothing, reading the file included, against pairs drawn from --file.
3. h2h plan, status and report against the runs of a study: nothing is measured for it, the table
   of benchmarks/large_study.py is read in docs/internals/performance.md.

Fitted is time ~ n^k by least squares of the logarithms, with k's standard error; beside it stands
k between the last two points alone, where what does not grow weighs least. One CPU thread. Points
are kept by --points FILE, and read from there if it exists.
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
from stacks import SIZES, batch_of, machine, stack_step

from headtohead.config.resolve import resolve
from headtohead.data import prepare
from headtohead.figures.style import INK, MARKERS, PALETTE, drawing, to_png
from headtohead.plugins.registry import current
from headtohead.training.memory import keep_freed_memory

PAGE = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
PANELS = {
    "members": "members of a stack",
    "width": "width of the model",
    "length": "tokens of a sentence",
    "pairs": "pairs prepared",
    "runs": "runs of a study",
}
MEMBERS = {"notebook 1": 64, "quickstart": 64, "tatoeba-heads": 16}
"""Largest stack of each size."""
WIDTHS = (16, 32, 64, 128, 256, 512)
LENGTHS = (4, 8, 16, 32, 64, 128)
PAIRS = (1000, 3000, 10_000, 30_000, 100_000)

WIDE = Size("512 tokens, 1 layer", 0, 2, 1, 0, 1000, 1000, 64, 8, 8)
LONG = Size("64 wide, 1 layer", 64, 2, 1, 256, 1000, 1000, 16, 0, 0)

LEAST_SECONDS = 0.03
"""Shorter steps are repeated until they take as long."""


@dataclass(frozen=True)
class Curve:
    """Seconds of a processor and on the clock, by the number they are held against."""

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
    def of(cls, numbers: Sequence[float], seconds: Sequence[float]) -> Growth:
        """Fit a line to the logarithms."""
        x, y = [math.log(one) for one in numbers], [math.log(one) for one in seconds]
        fitted = stats.linregress(x, y)
        return cls(float(fitted.slope), float(fitted.stderr), (y[-1] - y[-2]) / (x[-1] - x[-2]))

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, help="tab-separated pairs, .xz or not")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--largest", type=float, default=math.inf, help="of any number, for trials")
    parser.add_argument("--points", type=Path, help="JSON file of what is measured")
    parser.add_argument("--picture", type=Path, help="PNG file that is drawn")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if options.points and options.points.exists():
        curves = [Curve(**one) for one in json.loads(options.points.read_text())]
    else:
        curves = [*steps(options.rounds, options.largest)]
        if options.file:
            curves.append(preparing(options.file, [n for n in PAIRS if n <= options.largest]))
    if options.points:
        options.points.write_text(json.dumps([asdict(one) for one in curves], indent=1))
    curves += commands(PAGE.read_text(encoding="utf-8"))
    print(
        f"{machine(torch.device('cpu'))}; torch {torch.__version__}, 1 thread, float32; "
        f"medians of {options.rounds} rounds\n"
    )
    print("\n".join(table(curves)))
    if options.picture:
        options.picture.write_bytes(to_png(drawn(curves)))


def steps(rounds: int, largest: float, members: Mapping[str, int] = MEMBERS) -> Iterator[Curve]:
    """Measure training steps."""
    for size in SIZES:
        if most := min(largest, members.get(size.name, 0)):
            counts = [2**n for n in range(int(math.log2(most)) + 1)]
            yield curve("members", size.name, {n: (size, n) for n in counts}, rounds)
    wide = {n: (replace(WIDE, d_model=n, d_ff=4 * n), 1) for n in WIDTHS if n <= largest}
    yield curve("width", WIDE.name, wide, rounds)
    long = {n: (replace(LONG, source_time=n, target_time=n), 1) for n in LENGTHS if n <= largest}
    yield curve("length", LONG.name, long, rounds)


def curve(panel: str, name: str, points: Mapping[int, tuple[Size, int]], rounds: int) -> Curve:
    """Measure a step at every point, in turn."""
    actions = [stack_step(size, members, *batch_of(size), torch.device("cpu")) for size, members in points.values()]
    found: list[list[tuple[float, float]]] = [[] for _ in actions]
    repeats = []
    for action in actions:
        action()
        repeats.append(max(1, math.ceil(LEAST_SECONDS / timed(action, 1)[0])))
    for _ in range(rounds):
        for one, action, times in zip(found, actions, repeats, strict=True):
            one.append(timed(action, times))
    medians = [[statistics.median(side) for side in zip(*one, strict=True)] for one in found]
    processor, wall = zip(*medians, strict=True)
    return Curve(panel, name, list(points), processor, wall)


def timed(action: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the seconds of a processor and on the clock that one of so many calls took."""
    processor, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        action()
    return (time.process_time() - processor) / times, (time.perf_counter() - wall) / times


def preparing(file: Path, counts: Sequence[int], rounds: int = 2) -> Curve:
    """Prepare more and more pairs of a file, drawn from all of it, each time from nothing."""
    read = lzma.open if file.suffix == ".xz" else open
    with read(file, "rt", encoding="utf-8-sig") as lines:
        pairs = [line.rstrip("\n") for line in lines]
    random.Random(1).shuffle(pairs)
    if max(counts) > len(pairs):
        raise SystemExit(f"{file} has {len(pairs):,} pairs, not {max(counts):,}")
    found = []
    with tempfile.TemporaryDirectory(prefix="h2h-growth-") as scratch:
        for count in counts:
            part = Path(scratch) / f"{count}.tsv"
            part.write_text("\n".join(pairs[:count]) + "\n", encoding="utf-8")
            base = {"data": {"dataset": "tatoeba", "file": str(part)}, "train": {"steps": 1}}
            data = resolve(base, current()).data
            # What is loaded at first use is part of no size.
            empty = [Path(scratch) / f"{count}-{turn}" for turn in range(rounds + (not found))]
            times = [timed(partial(prepare, data, cache), 1) for cache in empty][-rounds:]
            found.append([min(side) for side in zip(*times, strict=True)])
    processor, wall = zip(*found, strict=True)
    return Curve("pairs", "prepared from nothing", list(counts), processor, wall)


def commands(page: str) -> list[Curve]:
    """Read what benchmarks/large_study.py measured."""
    rows = re.findall(r"^\| (plan|status|report) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    if not rows:
        raise SystemExit("docs/internals/performance.md has no table of benchmarks/large_study.py")
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
    """Write the exponents as Markdown."""
    yield ("| against | curve | from | to | processor time | exponent | last two points | exponent, on the clock |")
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for one in curves:
        numbers, seconds = one.numbers, one.processor
        growth, wall = Growth.of(numbers, seconds), Growth.of(numbers, one.wall)
        yield (
            f"| {PANELS[one.panel]} | {one.name} | {numbers[0]:,.0f} | {numbers[-1]:,.0f} "
            f"| {spoken(seconds[0])} to {spoken(seconds[-1])} | {growth} | {growth.last:.2f} "
            f"| {wall} |"
        )


def spoken(seconds: float) -> str:
    """Write a time with three digits."""
    if seconds >= 1000:
        return f"{seconds:,.0f} s"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def drawn(curves: Sequence[Curve]) -> Figure:
    """Draw a panel for each number, log-log, with the fitted lines."""
    panels = [name for name in PANELS if any(one.panel == name for one in curves)]
    across = min(3, len(panels))
    down = math.ceil(len(panels) / across)
    with drawing():
        figure = Figure(figsize=(3.6 * across, 3.3 * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for axes, name in zip(grid.flat, panels, strict=False):
            draw_panel(axes, name, [one for one in curves if one.panel == name])
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
    return figure


def draw_panel(axes: Axes, panel: str, curves: Sequence[Curve]) -> None:
    """Draw the points of each curve and the line through them."""
    for index, one in enumerate(curves):
        growth = Growth.of(one.numbers, one.processor)
        middle = [math.exp(statistics.fmean(map(math.log, side))) for side in (one.numbers, one.processor)]
        ends = (one.numbers[0], one.numbers[-1])
        line = [middle[1] * (end / middle[0]) ** growth.exponent for end in ends]
        axes.plot(ends, line, color=PALETTE[index], linewidth=1.2)
        axes.plot(
            one.numbers,
            one.processor,
            MARKERS[index],
            color=PALETTE[index],
            markersize=5,
            label=f"{one.name}\nexponent {growth}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(PANELS[panel], color=INK)
    axes.set_ylabel("processor time")
    numbers = max((one.numbers for one in curves), key=len)
    shown = numbers[:: 1 + (len(numbers) > 5)]
    axes.set_xticks(shown, [f"{one:,.0f}" for one in shown])
    axes.yaxis.set_major_formatter(lambda seconds, place: spoken(seconds))
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** (0.3 * len(curves)))  # room for the words
    axes.legend(loc="upper left", handletextpad=0.3, borderaxespad=0.2)


if __name__ == "__main__":
    main()
