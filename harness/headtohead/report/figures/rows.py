"""Figures with a row per variant or contrast: every seed as a point, with mean and interval."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.figures.rows import Row, difference_figure, row_figure
from headtohead.report.differences import shown_contrasts
from headtohead.storage.metrics import readable, show, stored, with_unit
from headtohead.storage.palette import Palette
from headtohead_judge.paired_tests import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 48
"""Maximum number of rows: the best variants and the baseline, or the largest differences."""


DIFFERENCE = "difference in {metric}, paired by seed"
BAND = "; shaded: within ±{margin}, the margin"


def forest_figure(analysis: Analysis) -> Figure | None:
    """Draw the contrasts of `forest_rows`, with the margin as a band if there is one; None without such a contrast.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    rows = forest_rows(analysis)
    if not rows:
        return None
    label = DIFFERENCE.format(metric=with_unit(analysis.metric))
    margin = _largest_margin(analysis)
    if margin:
        label += BAND.format(margin=show(margin, analysis.metric, like=margin))
    return difference_figure(rows, label, margin)


def _largest_margin(analysis: Analysis) -> float:
    """Return the largest margin that a verdict of the `forest_rows` uses; 0 without one."""
    margins = [0.0]
    for contrast in shown_contrasts(analysis):
        if contrast.metric == analysis.metric and contrast.judgement.margin:
            margins.append(contrast.judgement.margin)
    return max(margins)


def forest_rows(analysis: Analysis) -> list[Row]:
    """Return the row of each tested contrast in the primary metric, in the order of `shown_contrasts`.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    palette = Palette(analysis.frames.record)
    rows = []
    for contrast in shown_contrasts(analysis):
        if contrast.paired is not None and contrast.metric == analysis.metric:
            rows.append(contrast_row(analysis, palette, contrast))
    return rows


def contrast_row(analysis: Analysis, palette: Palette, contrast: ContrastResult) -> Row:
    """Return the row of a contrast, with a point per seed and its interval; without an interval, the mean alone.

    The colour is that of the variant, or of the value of the axis that the colours encode; of other contrasts black.

    Raises:
        AssertionError: If the contrast has no test.
    """
    paired = contrast.paired
    assert paired is not None
    points = []
    for seed, value in contrast.by_seed.items():
        shown = show(value, contrast.metric, signed=True)
        points.append((value, f"seed {seed}: {shown}"))
    interval = contrast.judgement.interval or Interval(paired.mean, paired.mean)
    return Row(
        contrast.name,
        f"{contrast.difference_text}  {contrast.direction}",
        paired.mean,
        interval.low,
        interval.high,
        tuple(points),
        colour=_contrast_colour(palette, contrast),
        is_strong=contrast.detected,
    )


def _contrast_colour(palette: Palette, contrast: ContrastResult) -> str:
    """Return the colour of the variant or of the axis value that a contrast is about; black for other contrasts."""
    if not palette.is_coloured:
        return style.INK
    is_of_axis = contrast.family == "factor" and contrast.axis == palette.colour_axis
    if contrast.family == "variant" or is_of_axis:
        return palette.colour(contrast.variant)
    return style.INK


UPPER_BOUND = "dashed: best possible without positions in the encoder, {bound:.3f}"


def strip_figure(analysis: Analysis) -> Figure:
    """Draw the scores of the best variants, best on top: at most ``MAX_ROWS``, the baseline among them.

    A line is the baseline's mean, a band its standard deviation on both sides; neither is drawn for a baseline that is
    not ranked, and no band for a single seed. A dashed line is the `Scores.upper_bound`, except in a metric that is
    computed from exact matches.
    """
    metric, baseline = analysis.metric, analysis.frames.baseline
    palette = Palette(analysis.frames.record)
    rows = []
    for slug in analysis.leading(MAX_ROWS):
        colour = palette.colour(slug)
        rows.append(_strip_row(analysis, slug, colour))
    figure, (axes,) = row_figure(rows, with_unit(metric))
    summary = analysis.summaries[baseline]
    if math.isfinite(summary.mean) and baseline not in analysis.unranked:
        axes.axvline(summary.mean, color=style.MUTED, linewidth=0.9, zorder=1)
        if math.isfinite(summary.sd):
            low, high = summary.mean - summary.sd, summary.mean + summary.sd
            axes.axvspan(low, high, color=style.GRID, alpha=0.7, linewidth=0, zorder=0)
    bound = analysis.upper_bound
    is_stored = metric == stored(metric)  # not in a metric derived from exact match
    if is_stored and bound is not None:
        axes.axvline(bound, color=style.INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        title = UPPER_BOUND.format(bound=bound)
        axes.set_title(title, loc="left", fontsize=9, fontweight="normal")
    return figure


def _strip_row(analysis: Analysis, slug: str, colour: str) -> Row:
    """Return the row of a variant: a point per score, the mean with its interval, and the mean as text.

    A variant that is not ranked has hollow points, no mean, and the note ``not ranked``, or the mean in the metric
    that it is judged on. The points are the scores in the primary metric; without scores, there are none.

    Raises:
        KeyError: If the study has no variant ``slug``.
    """
    metric = analysis.metric
    summary = analysis.summaries[slug]
    title = analysis.frames.by_slug[slug].title
    points = []
    for seed, score in sorted(analysis.frames.scores(slug, metric).items()):
        points.append((score, f"{title}, seed {seed}: {show(score, metric)}"))
    row = Row(
        title,
        "not ranked",
        math.nan,
        points=tuple(points),
        colour=colour,
        is_hollow=slug not in analysis.ranked,
        is_baseline=slug == analysis.frames.baseline,
    )
    if slug in analysis.ranked:
        row = replace(row, mean=summary.mean, low=summary.low, high=summary.high)
        if summary.n:
            row = replace(row, note=show(summary.mean, metric))
    judged_metric = analysis.judged_on.get(slug)
    if judged_metric:
        mean = analysis.frames.summary(slug, judged_metric).mean
        note = f"{readable(judged_metric)} {show(mean, judged_metric)}"
        row = replace(row, note=note)
    return row
