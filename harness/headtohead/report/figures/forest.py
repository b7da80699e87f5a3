"""Figure of the main contrasts: the difference of every seed, the mean and the 95 % interval."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from headtohead.analysis.contrasts import Contrast, factor_differences
from headtohead.analysis.study import Analysis, main_contrasts
from headtohead.figures import style
from headtohead.report.figures.strip import MOST_ROWS
from headtohead.storage.metrics import readable, show


def forest_figure(analysis: Analysis) -> Figure | None:
    """Draw the main contrasts, or return None without any."""
    contrasts = drawn_contrasts(analysis)
    if not contrasts:
        return None
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 0.85 + 0.34 * len(contrasts)), layout="constrained")
        axes = figure.add_subplot()
        style.bare_left(axes)
        axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
        for row, contrast in enumerate(contrasts):
            _row(figure, analysis, contrast, row)
        names = [contrast_name(analysis, contrast) for contrast in contrasts]
        axes.set_yticks(range(len(contrasts)), style.shortened(names, 60))
        axes.set_ylim(len(contrasts) - 0.4, -0.6)
        axes.set_xlabel(f"difference in {readable(analysis.metric)}, paired by seed")
    return figure


def drawn_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the contrasts with a row: all, or the ``MOST_ROWS`` largest differences."""
    judged = judged_contrasts(analysis)
    sizes = sorted((abs(contrast.paired.mean) for contrast in judged if contrast.paired), reverse=True)
    if len(sizes) <= MOST_ROWS:
        return judged
    threshold = sizes[MOST_ROWS - 1]
    return [contrast for contrast in judged if contrast.paired and abs(contrast.paired.mean) >= threshold][:MOST_ROWS]


def judged_contrasts(analysis: Analysis) -> list[Contrast]:
    """Return the main contrasts with a difference."""
    return [contrast for contrast in main_contrasts(analysis) if contrast.paired is not None]


def contrast_name(analysis: Analysis, contrast: Contrast) -> str:
    """Return a short name of a contrast, such as ``none against sinusoidal``."""
    if contrast.kind == "choice":
        return contrast.name
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        return f"{contrast.left} against {contrast.right}{within}"
    return f"{analysis.frames.by_slug[contrast.left].title} against baseline"


def _row(figure: Figure, analysis: Analysis, contrast: Contrast, row: int) -> None:
    axes = figure.axes[0]
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
    axes.annotate(
        f"{show(paired.mean, metric, signed=True)}  {contrast.verdict}",
        (1.005, row),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        fontsize=8.5,
        color=style.INK if contrast.detected else style.MUTED,
    )


def _by_seed(analysis: Analysis, contrast: Contrast) -> dict[int, float]:
    """Return the difference by seed, averaged over the pairs of the contrast."""
    if analysis.path and contrast.kind == "choice":
        return next(dict(value.by_seed) for value in analysis.path.values if value.contrast is contrast)
    slugs = {slug for pair in contrast.pairs for slug in pair}
    scores = {slug: analysis.frames.scores(slug, contrast.metric) for slug in slugs}
    seeds, differences = factor_differences(scores, contrast.pairs)
    return dict(zip(seeds, differences.mean(axis=0).tolist(), strict=True))
