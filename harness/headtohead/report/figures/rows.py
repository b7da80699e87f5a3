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
    """Draw the main contrasts, or return None without any.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    rows = forest_rows(analysis)
    if not rows:
        return None
    return difference_figure(rows, f"difference in {with_unit(analysis.metric)}, paired by seed")


def forest_rows(analysis: Analysis) -> list[Row]:
    """Return the row of each tested main contrast in the primary metric, the largest improvement first.

    Of more than ``MAX_ROWS`` contrasts, those with the largest absolute differences have a row. Between two
    configurations, the total difference comes first, and both contrasts of a change are neighbours. Empty without a
    tested contrast.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    tested = []
    for contrast in analysis.main_contrasts:
        if contrast.paired and contrast.metric == analysis.metric:
            tested.append(contrast)
    largest = largest_first(tested)[:MAX_ROWS]
    is_between = analysis.families.added.contrasts or analysis.families.taken.contrasts
    ordered = _by_change(largest) if is_between else _best_first(analysis, largest)
    return [_forest_row(analysis, contrast) for contrast in ordered]


def _by_change(contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the total difference, then both contrasts of each change, the changes in the order of ``contrasts``."""
    axes = list(dict.fromkeys(contrast.axis for contrast in contrasts))

    def rank(contrast: ContrastResult) -> tuple[bool, int, str]:
        is_change = contrast.axis is not None
        return is_change, axes.index(contrast.axis), contrast.family

    return sorted(contrasts, key=rank)


def _best_first(analysis: Analysis, contrasts: Sequence[ContrastResult]) -> list[ContrastResult]:
    """Return the contrasts by their differences in the direction of the metric, largest improvement first."""

    def gain(contrast: ContrastResult) -> float:
        return analysis.sign * contrast.paired.mean if contrast.paired else 0.0

    return sorted(contrasts, key=gain, reverse=True)


def _forest_row(analysis: Analysis, contrast: ContrastResult) -> Row:
    """Return the row of a contrast, with a point per seed and its interval; without an interval, the mean alone.

    Raises:
        AssertionError: If the contrast has no test.
    """
    paired = contrast.paired
    assert paired is not None
    points = []
    for seed, value in contrast.by_seed.items():
        shown = show(value, contrast.metric, signed=True)
        points.append((value, f"{contrast.name}, seed {seed}: {shown}"))
    interval = contrast.judgement.interval or Interval(paired.mean, paired.mean)
    return Row(
        contrast_name(analysis, contrast),
        f"{contrast.difference_text}  {contrast.direction}",
        paired.mean,
        interval.low,
        interval.high,
        tuple(points),
        is_strong=contrast.detected,
    )


UPPER_BOUND = "dashed: upper bound of an encoder without positions, {bound:.3f}"


def strip_figure(analysis: Analysis) -> Figure:
    """Draw the scores of the best ``MAX_ROWS`` variants and the baseline, best on top.

    A line is the baseline's mean, a band its standard deviation on both sides; neither is drawn for a baseline that is
    not ranked, and no band for a single seed. A dashed line is the bag-of-words upper bound, if the data have one.

    Raises:
        HeadToHeadError: As `Analysis`.
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
    that it is judged on. The points are the scores in the primary metric; without scores, there is none.

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
