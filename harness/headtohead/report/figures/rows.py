"""Figures with a row per variant or contrast: every seed as a point, with mean and interval."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.analysis.wording import contrast_name
from headtohead.figures import style
from headtohead.figures.rows import Row, difference_figure, row_figure
from headtohead.storage.metrics import readable, show, stored, with_unit
from headtohead.storage.palette import Palette

MAX_ROWS = 48
"""Maximum number of rows: the best variants and the baseline, or the largest differences."""


def forest_figure(analysis: Analysis) -> Figure | None:
    """Draw the main contrasts, or return None without any."""
    rows = forest_rows(analysis)
    return (
        difference_figure(rows, f"difference in {with_unit(analysis.metric)}, paired by seed")
        if rows
        else None
    )


def forest_rows(analysis: Analysis) -> list[Row]:
    """Return the row of each drawn contrast, best first: all, or the ``MAX_ROWS`` largest differences.

    Both contrasts of a change between two configurations are neighbours.
    """
    judged = [
        found
        for found in analysis.main_contrasts
        if found.paired and found.metric == analysis.metric
    ]
    largest = sorted(judged, key=lambda found: -abs(found.paired.mean) if found.paired else 0.0)[
        :MAX_ROWS
    ]
    order = {
        axis: number for number, axis in enumerate(dict.fromkeys(found.axis for found in largest))
    }
    is_between = bool(analysis.families.added.contrasts or analysis.families.taken.contrasts)

    def sort_key(found: ContrastResult) -> tuple[object, ...]:
        if is_between:
            return found.axis is not None, order[found.axis], found.family
        return (-analysis.sign * found.paired.mean if found.paired else 0.0,)

    rows = []
    for contrast in sorted(largest, key=sort_key):
        paired, metric = contrast.paired, contrast.metric
        assert paired is not None
        points = tuple(
            (value, f"{contrast.name}, seed {seed}: {show(value, metric, signed=True)}")
            for seed, value in contrast.by_seed.items()
        )
        note = f"{contrast.difference_text}  {contrast.verdict}"
        name, own = contrast_name(analysis, contrast), contrast.judgement.interval or paired
        rows.append(
            Row(name, note, paired.mean, own.low, own.high, points, is_strong=contrast.detected)
        )
    return rows


def strip_figure(analysis: Analysis) -> Figure:
    """Draw the scores, best variant on top, with the baseline's standard deviation as a band."""
    metric, baseline, palette = (
        analysis.metric,
        analysis.frames.baseline,
        Palette(analysis.frames.record),
    )
    rows, ranked = [], analysis.ranked
    for slug in analysis.leading(MAX_ROWS):
        summary, title, is_ranked = (
            analysis.summaries[slug],
            analysis.frames.by_slug[slug].title,
            slug in ranked,
        )
        note = show(summary.mean, metric) if is_ranked and summary.n else "not ranked"
        if judged_metric := analysis.judged_on.get(slug):
            mean = analysis.frames.summary(slug, judged_metric).mean
            note = f"{readable(judged_metric)} {show(mean, judged_metric)}"
        scores = sorted(analysis.frames.scores(slug, metric).items())
        rows.append(
            Row(
                title,
                note,
                *(
                    (summary.mean, summary.low, summary.high)
                    if is_ranked
                    else (math.nan, math.nan, math.nan)
                ),
                tuple(
                    (score, f"{title}, seed {seed}: {show(score, metric)}")
                    for seed, score in scores
                ),
                palette.colour(slug),
                is_hollow=not is_ranked,
                is_baseline=slug == baseline,
            )
        )
    figure, (axes,) = row_figure(rows, with_unit(metric))
    summary = analysis.summaries[baseline]
    if math.isfinite(summary.mean) and baseline not in analysis.unranked:
        axes.axvline(summary.mean, color=style.MUTED, linewidth=0.9, zorder=1)
        if math.isfinite(summary.sd):
            low, high = summary.mean - summary.sd, summary.mean + summary.sd
            axes.axvspan(low, high, color=style.GRID, alpha=0.7, linewidth=0, zorder=0)
    if metric == stored(metric) and (bound := analysis.upper_bound) is not None:
        axes.axvline(bound, color=style.INK, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        axes.set_title(
            f"dashed: upper bound of an encoder without positions, {bound:.3f}",
            loc="left",
            fontsize=9,
            fontweight="normal",
        )
    return figure
