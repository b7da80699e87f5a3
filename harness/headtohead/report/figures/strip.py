"""Figure of the scores: every seed of every variant, with mean and 95 % interval."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.report.figures.reference_points import draw_reference_points
from headtohead.storage.metrics import readable, show

MOST_ROWS = 48
"""Maximum number of rows; with more variants, the best and the baseline are drawn."""


def strip_figure(analysis: Analysis, *, narrow: bool = False) -> Figure:
    """Draw the scores, best variant on top, with the baseline's standard deviation as a band."""
    slugs = drawn_variants(analysis)
    with style.drawing():
        figure = style.row_figure(len(slugs), narrow=narrow, pitch=0.27)
        axes = figure.add_subplot()
        style.bare_left(axes)
        _baseline_band(axes, analysis)
        for row, slug in enumerate(slugs):
            _row(figure, axes, analysis, slug, row)
        _upper_bound(axes, analysis)
        names = [analysis.frames.by_slug[slug].title for slug in slugs]
        baseline = analysis.frames.baseline
        style.name_rows(axes, names, narrow=narrow, bold=[slugs.index(baseline)] if baseline in slugs else [])
        style.note_rows(axes, [_note(analysis, slug) for slug in slugs], [False] * len(slugs), narrow=narrow)
        axes.set_xlabel(readable(analysis.metric))
        draw_reference_points(axes, analysis)
    return figure


def drawn_variants(analysis: Analysis) -> list[str]:
    """Return the variants with a row: all, or the best and the baseline."""
    slugs = list(analysis.order)
    if len(slugs) <= MOST_ROWS:
        return slugs
    best = slugs[: MOST_ROWS - 1]
    return best if analysis.frames.baseline in best else [*best, analysis.frames.baseline]


def _row(figure: Figure, axes: Axes, analysis: Analysis, slug: str, row: int) -> None:
    colour = Palette(analysis.frames).colour(slug)
    withheld = slug in analysis.withheld
    scores = analysis.frames.scores(slug, analysis.metric)
    title = analysis.frames.by_slug[slug].title
    for index, (seed, score) in enumerate(sorted(scores.items())):
        offset = (index - (len(scores) - 1) / 2) * 0.34 / max(len(scores) - 1, 1)
        (point,) = axes.plot(
            score,
            row + offset,
            "o",
            color=colour,
            markersize=4.6,
            alpha=0.75,
            markeredgewidth=0.9,
            markerfacecolor="none" if withheld else colour,
            zorder=3,
        )
        style.tip(figure, point, f"{title}, seed {seed}: {show(score, analysis.metric)}")
    summary = analysis.summaries[slug]
    if withheld or not summary.n:
        return
    if math.isfinite(summary.low):
        (bar,) = axes.plot(
            [summary.low, summary.high],
            [row, row],
            color=colour,
            linewidth=2.2,
            alpha=0.9,
            solid_capstyle="butt",
            zorder=2,
        )
        style.tip(
            figure,
            bar,
            f"{title}: 95 % interval {show(summary.low, analysis.metric)} to {show(summary.high, analysis.metric)}",
        )
    axes.plot(summary.mean, row, "|", color=style.INK, markersize=13, markeredgewidth=1.8, zorder=4)


def _note(analysis: Analysis, slug: str) -> str:
    """Return the mean of a variant, or that it is not ranked."""
    summary = analysis.summaries[slug]
    return "not ranked" if slug in analysis.withheld or not summary.n else show(summary.mean, analysis.metric)


def _baseline_band(axes: Axes, analysis: Analysis) -> None:
    summary = analysis.summaries[analysis.frames.baseline]
    if math.isfinite(summary.mean) and analysis.frames.baseline not in analysis.withheld:
        axes.axvline(summary.mean, color=style.MUTED, linewidth=0.9, zorder=1)
        if math.isfinite(summary.sd):
            axes.axvspan(
                summary.mean - summary.sd, summary.mean + summary.sd, color=style.GRID, alpha=0.7, linewidth=0, zorder=0
            )


def _upper_bound(axes: Axes, analysis: Analysis) -> None:
    """Draw the bag-of-words upper bound as a line with its name above the axes."""
    if analysis.upper_bound is None:
        return
    axes.axvline(analysis.upper_bound, color=style.INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        f"bag-of-words upper bound {analysis.upper_bound:.3f}",
        (analysis.upper_bound, 1.01),
        xycoords=axes.get_xaxis_transform(),
        fontsize=8,
        ha="center",
        va="bottom",
        color=style.INK,
    )
