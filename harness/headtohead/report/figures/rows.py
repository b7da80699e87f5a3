"""Figures with a row per variant or contrast: every seed as a point, with mean and interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name
from headtohead.figures import style
from headtohead.figures.rows import Row, difference_figure, row_figure
from headtohead.report.answer import largest_first
from headtohead.storage.metrics import readable, show, stored, with_unit
from headtohead.storage.palette import Palette
from headtohead_judge.paired_tests import Interval

MAX_ROWS = 48
"""Maximum number of rows: the best variants and the baseline, or the largest differences."""


def forest_figure(analysis: Analysis) -> Figure | None:
    """Draw the main contrasts, or return None without any."""
    rows = forest_rows(analysis)
    if not rows:
        return None
    return difference_figure(rows, f"difference in {with_unit(analysis.metric)}, paired by seed")


def forest_rows(analysis: Analysis) -> list[Row]:
    """Return the row of each drawn contrast, best first: all, or the ``MAX_ROWS`` largest differences.

    Both contrasts of a change between two configurations are neighbours.
    """
    judged = []
    for contrast in analysis.main_contrasts:
        if contrast.paired and contrast.metric == analysis.metric:
            judged.append(contrast)
    largest = largest_first(judged)[:MAX_ROWS]
    is_between = analysis.families.added.contrasts or analysis.families.taken.contrasts
    ordered = _by_change(largest) if is_between else _best_first(analysis, largest)
    return [_forest_row(analysis, contrast) for contrast in ordered]


def _by_change(contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the total difference, then the changes in the order of their larger difference."""
    axes = list(dict.fromkeys(contrast.axis for contrast in contrasts))

    def rank(contrast: ContrastResult) -> tuple[bool, int, str]:
        return contrast.axis is not None, axes.index(contrast.axis), contrast.family

    return sorted(contrasts, key=rank)


def _best_first(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the contrasts by their differences in the direction of the metric, largest improvement first."""

    def gain(contrast: ContrastResult) -> float:
        return analysis.sign * contrast.paired.mean if contrast.paired else 0.0

    return sorted(contrasts, key=gain, reverse=True)


def _forest_row(analysis: Analysis, contrast: ContrastResult) -> Row:
    """Return the row of a contrast that has a test, with its interval; without an interval, the mean alone."""
    paired = contrast.paired
    assert paired is not None
    points = []
    for seed, value in contrast.by_seed.items():
        shown = show(value, contrast.metric, signed=True)
        points.append((value, f"{contrast.name}, seed {seed}: {shown}"))
    interval = contrast.judgement.interval or Interval(paired.mean, paired.mean)
    return Row(
        contrast_name(analysis, contrast),
        f"{contrast.difference_text}  {contrast.verdict}",
        paired.mean,
        interval.low,
        interval.high,
        tuple(points),
        is_strong=contrast.detected,
    )


UPPER_BOUND = "dashed: upper bound of an encoder without positions, {bound:.3f}"


def strip_figure(analysis: Analysis) -> Figure:
    """Draw the scores, best variant on top, with the baseline's standard deviation as a band."""
    metric, baseline = analysis.metric, analysis.frames.baseline
    palette = Palette(analysis.frames.record)
    rows = []
    for slug in analysis.leading(MAX_ROWS):
        rows.append(_strip_row(analysis, slug, palette.colour(slug)))
    figure, (axes,) = row_figure(rows, with_unit(metric))
    summary = analysis.summaries[baseline]
    if math.isfinite(summary.mean) and baseline not in analysis.unranked:
        axes.axvline(summary.mean, color=style.MUTED, linewidth=0.9, zorder=1)
        if math.isfinite(summary.sd):
            low, high = summary.mean - summary.sd, summary.mean + summary.sd
            axes.axvspan(low, high, color=style.GRID, alpha=0.7, linewidth=0, zorder=0)
    bound = analysis.upper_bound
    if metric == stored(metric) and bound is not None:
        axes.axvline(bound, color=style.INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        title = UPPER_BOUND.format(bound=bound)
        axes.set_title(title, loc="left", fontsize=9, fontweight="normal")
    return figure


def _strip_row(analysis: Analysis, slug: str, colour: str) -> Row:
    """Return the scores of a variant; without a mean and hollow if it is not ranked.

    A variant that is judged on another metric has the mean in that metric as its note.
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
        row = replace(row, note=f"{readable(judged_metric)} {show(mean, judged_metric)}")
    return row
