"""Figure of a Shapley path as a waterfall: from the score of the start to that of the end, choice by choice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.shapley import PathAnalysis, ShapleyValue
from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import higher_is_better, readable, show

BETTER, WORSE = style.PALETTE[0], style.PALETTE[1]


@dataclass(frozen=True)
class Bar:
    """A row of the waterfall: the scores before and after, and the Shapley value of the choice, if it is known."""

    name: str
    start: float
    end: float
    value: ShapleyValue | None = None


def waterfall_figure(analysis: Analysis, *, narrow: bool = False) -> Figure | None:
    """Draw the Shapley values of a path, largest first; None without a path or a known total difference."""
    path = analysis.path
    if path is None or path.total.paired is None or not path.known:
        return None
    bars = list(_bars(analysis, path))
    with style.drawing():
        figure = style.row_figure(len(bars) + 2, narrow=narrow, pitch=0.31)
        axes = figure.add_subplot()
        style.bare_left(axes)
        _end(figure, axes, analysis, path.start, 0)
        for row, bar in enumerate(bars, 1):
            _bar(figure, axes, analysis.metric, bar, row)
        _end(figure, axes, analysis, path.end, len(bars) + 1)
        if not narrow:  # the names of a phone stand between the rows
            _connect(axes, bars)
        names = [path.names[0], *(bar.name for bar in bars), path.names[1]]
        style.name_rows(axes, names, narrow=narrow, bold=(0, len(bars) + 1))
        changes = [_note(bar, analysis.metric, narrow=narrow) for bar in bars]
        ends = [show(analysis.summaries[slug].mean, analysis.metric) for slug in (path.start, path.end)]
        detected = [bar.value is not None and bar.value.contrast.detected for bar in bars]
        style.note_rows(axes, [ends[0], *changes, ends[1]], [True, *detected, True], narrow=narrow)
        axes.set_xlabel(readable(analysis.metric))
    return figure


def _bars(analysis: Analysis, path: PathAnalysis) -> Iterator[Bar]:
    before = analysis.summaries[path.start].mean
    for value in path.known:
        after = before + value.mean
        yield Bar(value.name, before, after, value)
        before = after
    if path.remainder:
        yield Bar("not tested", before, analysis.summaries[path.end].mean)


def _end(figure: Figure, axes: Axes, analysis: Analysis, slug: str, row: int) -> None:
    summary = analysis.summaries[slug]
    if math.isfinite(summary.low):
        axes.plot(
            [summary.low, summary.high], [row, row], color=style.INK, linewidth=2.2, solid_capstyle="butt", zorder=3
        )
    (point,) = axes.plot(summary.mean, row, "D", color=style.INK, markersize=6, zorder=4)
    style.tip(figure, point, f"{analysis.frames.by_slug[slug].title}: {show(summary.mean, analysis.metric)}")


def _bar(figure: Figure, axes: Axes, metric: str, bar: Bar, row: int) -> None:
    value = bar.value
    detected = value is not None and value.contrast.detected
    improves = (bar.end >= bar.start) == higher_is_better(metric)
    colour = (BETTER if improves else WORSE) if detected else style.MUTED
    (patch,) = axes.barh(
        row, bar.end - bar.start, left=bar.start, height=0.56, color=colour, alpha=0.85 if detected else 0.45, zorder=2
    )
    style.tip(figure, patch, f"{bar.name}: {show(bar.end - bar.start, metric, signed=True)}")
    if value is None:
        return
    for number, permutation_change in enumerate(value.by_permutation, 1):
        (dot,) = axes.plot(
            bar.start + permutation_change,
            row,
            "|",
            color=style.INK,
            markersize=9,
            markeredgewidth=0.7,
            alpha=0.45,
            zorder=3,
        )
        text = f"{bar.name}, permutation {number}: {show(permutation_change, metric, signed=True)}"
        style.tip(figure, dot, text)
    sampled = value.sampled
    if sampled is not None and math.isfinite(sampled.low):
        axes.plot(
            [bar.start + sampled.low, bar.start + sampled.high],
            [row, row],
            color=style.INK,
            linewidth=1.6,
            solid_capstyle="butt",
            zorder=4,
        )


def _connect(axes: Axes, bars: list[Bar]) -> None:
    """Connect the end of each row with the start of the next."""
    levels = [bar.start for bar in bars] + [bars[-1].end]
    for row, level in enumerate(levels):
        axes.plot([level, level], [row + 0.28, row + 0.72], color=style.MUTED, linewidth=0.8, zorder=1)


def _note(bar: Bar, metric: str, *, narrow: bool) -> str:
    """Return the change and its verdict; a phone has room for the change alone."""
    change = show(bar.end - bar.start, metric, signed=True)
    if bar.value is None:
        return f"{change}  not tested"
    return change if narrow else f"{change}  {bar.value.contrast.verdict}"
