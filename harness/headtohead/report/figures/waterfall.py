"""A path as a waterfall: from the score at its start to that at its end, choice by choice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.shapley import PathAnalysis, Share
from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import readable, show

RISE, FALL = style.PALETTE[0], style.PALETTE[1]


@dataclass(frozen=True)
class Bar:
    """One row: from where to where the score goes, and the choice that moves it, if one does."""

    name: str
    start: float
    end: float
    share: Share | None = None


def waterfall_figure(analysis: Analysis) -> Figure | None:
    """Draw the shares of a path, largest first; None without a path or a known distance."""
    path = analysis.path
    if path is None or path.distance.paired is None or not path.known:
        return None
    bars = list(_bars(analysis, path))
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 1.0 + 0.31 * (len(bars) + 2)), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        _end(figure, axes, analysis, path.start, 0)
        for row, bar in enumerate(bars, 1):
            _bar(figure, axes, analysis.metric, bar, row)
        _end(figure, axes, analysis, path.end, len(bars) + 1)
        _connect(axes, bars)
        names = [path.names[0], *(bar.name for bar in bars), path.names[1]]
        axes.set_yticks(range(len(names)), style.shortened(names, 46))
        for label in (axes.get_yticklabels()[0], axes.get_yticklabels()[-1]):
            label.set_fontweight("bold")
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlabel(readable(analysis.metric))
    return figure


def _bars(analysis: Analysis, path: PathAnalysis) -> Iterator[Bar]:
    here = analysis.summaries[path.start].mean
    for share in path.known:
        there = here + share.mean
        yield Bar(share.name, here, there, share)
        here = there
    if path.remainder:
        yield Bar("not judged", here, analysis.summaries[path.end].mean)


def _end(figure: Figure, axes: Axes, analysis: Analysis, slug: str, row: int) -> None:
    summary = analysis.summaries[slug]
    if math.isfinite(summary.low):
        axes.plot(
            [summary.low, summary.high], [row, row], color=style.INK, linewidth=2.2, solid_capstyle="butt", zorder=3
        )
    (point,) = axes.plot(summary.mean, row, "D", color=style.INK, markersize=6, zorder=4)
    words = f"{analysis.frames.variants[slug]['title']}: {show(summary.mean, analysis.metric)}"
    style.tip(figure, point, words)
    _note(axes, row, show(summary.mean, analysis.metric), bold=True)


def _bar(figure: Figure, axes: Axes, metric: str, bar: Bar, row: int) -> None:
    share = bar.share
    detected = share is not None and share.contrast.found
    colour = (RISE if bar.end >= bar.start else FALL) if detected else style.MUTED
    (patch,) = axes.barh(
        row, bar.end - bar.start, left=bar.start, height=0.56, color=colour, alpha=0.85 if detected else 0.45, zorder=2
    )
    change = show(bar.end - bar.start, metric, signed=True)
    style.tip(figure, patch, f"{bar.name}: {change}")
    if share is None:
        _note(axes, row, f"{change}  not judged")
        return
    for order, value in enumerate(share.by_order, 1):
        (dot,) = axes.plot(
            bar.start + value, row, "|", color=style.INK, markersize=9, markeredgewidth=0.7, alpha=0.45, zorder=3
        )
        style.tip(figure, dot, f"{bar.name}, order {order}: {show(value, metric, signed=True)}")
    paired = share.contrast.paired
    if paired is not None and math.isfinite(paired.low):
        axes.plot(
            [bar.start + paired.low, bar.start + paired.high],
            [row, row],
            color=style.INK,
            linewidth=1.6,
            solid_capstyle="butt",
            zorder=4,
        )
    _note(axes, row, f"{change}  {share.contrast.verdict or share.contrast.reason or ''}", muted=not detected)


def _connect(axes: Axes, bars: list[Bar]) -> None:
    """Lead from each row to the next at the score where the one ends and the other begins."""
    levels = [bar.start for bar in bars] + [bars[-1].end]
    for row, level in enumerate(levels):
        axes.plot([level, level], [row + 0.28, row + 0.72], color=style.MUTED, linewidth=0.8, zorder=1)


def _note(axes: Axes, row: int, words: str, *, bold: bool = False, muted: bool = False) -> None:
    axes.annotate(
        words[:60],
        (1.005, row),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        fontsize=8.5,
        fontweight="bold" if bold else "normal",
        color=style.MUTED if muted else style.INK,
    )
