"""Figures with a row per variant or contrast: every seed as a point, with mean and 95 % interval."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.contrasts import Contrast
from headtohead.analysis.reference_points import NAMES
from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.figures.forest import ForestRow, forest
from headtohead.report.figures.palette import Palette
from headtohead.report.section import contrast_name, ends
from headtohead.storage.metrics import higher_is_better, readable, show, span

MOST_ROWS = 48
"""Maximum number of rows: the best variants and the baseline, or the largest differences."""

LINE_POINTS = 11
"""Distance of the lines of text above the figure, in points."""


def forest_figure(analysis: Analysis) -> Figure | None:
    """Draw the main contrasts, or return None without any."""
    rows = forest_rows(analysis)
    return forest(rows, f"difference in {readable(analysis.metric)}, paired by seed") if rows else None


def forest_rows(analysis: Analysis) -> list[ForestRow]:
    """Return the row of each drawn contrast."""
    rows = []
    for contrast in drawn_contrasts(analysis):
        paired, metric = contrast.paired, contrast.metric
        assert paired is not None
        points = tuple(
            (value, f"{contrast.name}, seed {seed}: {show(value, metric, signed=True)}")
            for seed, value in contrast.by_seed.items()
        )
        note = f"{show(paired.mean, metric, signed=True)}  {contrast.verdict}"
        name = contrast_name(analysis, contrast)
        rows.append(ForestRow(name, note, paired.mean, paired.low, paired.high, points, contrast.detected))
    return rows


def drawn_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts with a row, best first: all, or the ``MOST_ROWS`` largest differences.

    Both contrasts of a change between two configurations are neighbours.
    """

    def mean(contrast: Contrast) -> float:
        return contrast.paired.mean if contrast.paired else 0.0

    judged = [found for found in analysis.main_contrasts if found.paired and found.metric == analysis.metric]
    largest = sorted(judged, key=lambda contrast: -abs(mean(contrast)))[:MOST_ROWS]
    if analysis.added.contrasts or analysis.taken.contrasts:
        sizes: dict[str | None, float] = {}
        for contrast in largest:
            sizes[contrast.axis] = max(sizes.get(contrast.axis, 0.0), abs(mean(contrast)))
        return sorted(largest, key=lambda c: (c.axis is not None, -sizes[c.axis], c.axis or "", c.kind))
    sign = -1 if higher_is_better(analysis.metric) else 1
    return sorted(largest, key=lambda contrast: sign * mean(contrast))


def strip_figure(analysis: Analysis) -> Figure:
    """Draw the scores, best variant on top, with the baseline's standard deviation as a band."""
    slugs, metric, baseline = drawn_variants(analysis), analysis.metric, analysis.frames.baseline
    with style.drawing():
        figure = style.row_figure(len(slugs), pitch=0.27)
        axes = figure.add_subplot()
        style.bare_left(axes)
        summary = analysis.summaries[baseline]
        if math.isfinite(summary.mean) and baseline not in analysis.withheld:
            axes.axvline(summary.mean, color=style.MUTED, linewidth=0.9, zorder=1)
            if math.isfinite(summary.sd):
                low, high = summary.mean - summary.sd, summary.mean + summary.sd
                axes.axvspan(low, high, color=style.GRID, alpha=0.7, linewidth=0, zorder=0)
        notes = []
        for row, slug in enumerate(slugs):
            _draw_scores(figure, axes, analysis, slug, row)
            is_ranked = slug not in analysis.withheld and analysis.summaries[slug].n
            notes.append(show(analysis.summaries[slug].mean, metric) if is_ranked else "not ranked")
        if analysis.upper_bound is not None:
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
        names = [analysis.frames.by_slug[slug].title for slug in slugs]
        style.name_rows(axes, names, bold=[slugs.index(baseline)] if baseline in slugs else [])
        style.note_rows(axes, notes, [False] * len(slugs))
        axes.set_xlabel(readable(metric))
        _draw_reference_points(axes, analysis)
    return figure


def drawn_variants(analysis: Analysis) -> list[str]:
    """Return the variants with a row: all, or the best and the baseline."""
    slugs = list(analysis.order)
    if len(slugs) <= MOST_ROWS:
        return slugs
    best = slugs[: MOST_ROWS - 1]
    return best if analysis.frames.baseline in best else [*best, analysis.frames.baseline]


def _draw_scores(figure: Figure, axes: Axes, analysis: Analysis, slug: str, row: int) -> None:
    colour, metric = Palette(analysis.frames).colour(slug), analysis.metric
    withheld, title = slug in analysis.withheld, analysis.frames.by_slug[slug].title
    points = [
        (score, f"{title}, seed {seed}: {show(score, metric)}")
        for seed, score in sorted(analysis.frames.scores(slug, metric).items())
    ]
    style.seed_points(figure, axes, row, points, colour, hollow=withheld, alpha=0.75)
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
        style.tip(figure, bar, f"{title}: 95 % interval {ends(summary.low, summary.high, metric)}")
    axes.plot(summary.mean, row, "|", color=style.INK, markersize=13, markeredgewidth=1.8, zorder=4)


def _draw_reference_points(axes: Axes, analysis: Analysis) -> None:
    """Draw the reference points of the baseline's data as lines, without changing the range.

    Reference points outside the range of the scores are named at the edge that they lie beyond. A reference point with
    the smallest or largest possible score is not drawn.
    """
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points is None or analysis.metric not in points.scores["vocabulary_bound"]:
        return
    low, high = axes.get_xlim()
    least, largest = span(analysis.metric)
    values = {name: points.scores[key][analysis.metric] for key, name in NAMES.items() if key in points.scores}
    drawn = {name: value for name, value in values.items() if least < value < largest}
    for line, (name, value) in enumerate(drawn.items()):
        text, x, align = f"{name} {show(value, analysis.metric)}", (value - low) / (high - low), "center"
        if low <= value <= high:
            axes.axvline(value, color=style.MUTED, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1)
        elif value < low:
            text, x, align = f"← {text}", 0.0, "left"
        else:
            text, x, align = f"{text} →", 1.0, "right"
        above = (0, 3 + LINE_POINTS * line)
        style_of: dict[str, Any] = {"ha": align, "va": "bottom", "fontsize": 8, "color": style.MUTED}
        axes.annotate(text, (x, 1.0), above, "axes fraction", "offset points", **style_of)
    axes.set_xlim(low, high)
