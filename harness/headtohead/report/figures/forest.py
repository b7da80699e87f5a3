"""Figure of the main contrasts: the difference of every seed, the mean and the 95 % interval."""

from __future__ import annotations

import itertools
import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.contrasts import Contrast, factor_differences
from headtohead.analysis.study import Analysis, main_contrasts
from headtohead.figures import style
from headtohead.report.figures.strip import MOST_ROWS
from headtohead.storage.metrics import higher_is_better, readable, show

HIDING_RATIO = 4
"""Ratio of two successive sizes of contrasts from which the larger contrasts hide the smaller."""


def forest_figure(analysis: Analysis, *, narrow: bool = False) -> Figure | None:
    """Draw the main contrasts, or return None without any.

    If large differences hide small ones, a second panel magnifies the small differences; the narrow figure has only
    this panel. Triangles mark differences outside the panel.
    """
    contrasts = drawn_contrasts(analysis)
    if not contrasts:
        return None
    limits = magnified_range(analysis, contrasts)
    with style.drawing():
        figure = style.row_figure(len(contrasts), narrow=narrow)
        if limits and not narrow:
            panels = list(figure.subplots(1, 2, sharey=True, width_ratios=(1, 2)))
            panels[0].set_title("full range")
            panels[1].set_title("magnified")
        else:
            panels = [figure.add_subplot()]
        for axes in panels:
            style.bare_left(axes)
            axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
            for row, contrast in enumerate(contrasts):
                _row(figure, axes, analysis, contrast, row)
        if limits:
            _magnify(panels[-1], analysis, contrasts, limits)
        notes = [_note(contrast) for contrast in contrasts]
        style.name_rows(panels[0], [contrast_name(analysis, contrast) for contrast in contrasts], narrow=narrow)
        style.note_rows(panels[-1], notes, [contrast.detected for contrast in contrasts], narrow=narrow)
        figure.supxlabel(f"difference in {readable(analysis.metric)}, paired by seed", fontsize=9)
    return figure


def drawn_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts with a row, best first: all, or the ``MOST_ROWS`` largest differences.

    The choices of a Shapley path keep their order, largest first.
    """
    judged = judged_contrasts(analysis)
    largest = sorted(judged, key=lambda contrast: -abs(_mean(contrast)))[:MOST_ROWS]
    if analysis.path:
        return largest
    sign = -1 if higher_is_better(analysis.metric) else 1
    return sorted(largest, key=lambda contrast: sign * _mean(contrast))


def judged_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the main contrasts with a difference."""
    return [contrast for contrast in main_contrasts(analysis) if contrast.paired is not None]


def magnified_range(analysis: Analysis, contrasts: list[Contrast]) -> tuple[float, float] | None:
    """Return the range of the small differences if larger ones hide them, else None."""
    ends = sorted((_ends(analysis, contrast) for contrast in contrasts), key=_size)
    sizes = [_size(end) for end in ends]
    steps = [
        (after / before, index) for index, (before, after) in enumerate(itertools.pairwise(sizes), 1) if before > 0
    ]
    ratio, count = max(steps, default=(0.0, 0))
    if ratio < HIDING_RATIO:
        return None
    low, high = min(0.0, *(end[0] for end in ends[:count])), max(0.0, *(end[1] for end in ends[:count]))
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def contrast_name(analysis: Analysis, contrast: Contrast) -> str:
    """Return a short name of a contrast, such as ``none against sinusoidal``."""
    if contrast.kind == "choice":
        return contrast.name
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        axis = f"{contrast.axis} " if "." in str(contrast.axis) else ""
        return f"{axis}{contrast.left} against {contrast.right}{within}"
    return f"{analysis.frames.by_slug[contrast.left].title} against baseline"


def _mean(contrast: Contrast) -> float:
    return contrast.paired.mean if contrast.paired else 0.0


def _note(contrast: Contrast) -> str:
    return f"{show(_mean(contrast), contrast.metric, signed=True)}  {contrast.verdict}"


def _ends(analysis: Analysis, contrast: Contrast) -> tuple[float, float]:
    """Return the smallest and the largest drawn value of a contrast."""
    assert contrast.paired is not None
    values = [*_by_seed(analysis, contrast).values(), contrast.paired.low, contrast.paired.high]
    finite = [value for value in values if math.isfinite(value)]
    return min(finite), max(finite)


def _size(ends: tuple[float, float]) -> float:
    return max(abs(end) for end in ends)


def _magnify(axes: Axes, analysis: Analysis, contrasts: list[Contrast], limits: tuple[float, float]) -> None:
    """Limit the axes, and mark the differences outside."""
    low, high = limits
    axes.set_xlim(low, high)
    for row, contrast in enumerate(contrasts):
        mean = _mean(contrast)
        if not low <= mean <= high:
            x, marker = (0.012, "<") if mean < low else (0.988, ">")
            axes.plot(
                x,
                row,
                marker,
                color=style.PALETTE[0] if contrast.detected else style.MUTED,
                markersize=7,
                transform=axes.get_yaxis_transform(),
                zorder=5,
            )


def _row(figure: Figure, axes: Axes, analysis: Analysis, contrast: Contrast, row: int) -> None:
    assert contrast.paired is not None
    colour = style.PALETTE[0] if contrast.detected else style.MUTED
    metric, by_seed = contrast.metric, _by_seed(analysis, contrast)
    for index, (seed, value) in enumerate(by_seed.items()):
        offset = (index - (len(by_seed) - 1) / 2) * 0.34 / max(len(by_seed) - 1, 1)
        (point,) = axes.plot(
            value, row + offset, "o", color=colour, markersize=4.6, alpha=0.6, markeredgewidth=0, zorder=3
        )
        style.tip(figure, point, f"{contrast.name}, seed {seed}: {show(value, metric, signed=True)}")
    paired = contrast.paired
    if math.isfinite(paired.low):
        axes.plot([paired.low, paired.high], [row, row], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=2)
    axes.plot(paired.mean, row, "|", color=style.INK, markersize=14, markeredgewidth=1.8, zorder=4)


def _by_seed(analysis: Analysis, contrast: Contrast) -> dict[int, float]:
    """Return the difference by seed, averaged over the pairs of the contrast."""
    if analysis.path and contrast.kind == "choice":
        return next(dict(value.by_seed) for value in analysis.path.values if value.contrast is contrast)
    slugs = {slug for pair in contrast.pairs for slug in pair}
    scores = {slug: analysis.frames.scores(slug, contrast.metric) for slug in slugs}
    seeds, differences = factor_differences(scores, contrast.pairs)
    return dict(zip(seeds, differences.mean(axis=0).tolist(), strict=True))
