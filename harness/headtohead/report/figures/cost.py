"""Figure of the score against parameters, FLOPs and training time."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.report.figures.rows import MOST_ROWS
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import readable, show_count

COSTS = {
    "parameters/total": "parameters",
    "flops_per_token": "FLOPs per token",
    "system/train_seconds": "training time, s",
}
MOST_LABELS = 14
"""Maximum number of labels of the legend; with more there is none, and the tooltips name the variants."""


def cost_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean score against each cost, or return None without scores or costs."""
    frames, palette = analysis.frames, Palette(analysis.frames)
    slugs = [slug for slug in analysis.leading(MOST_ROWS) if slug not in analysis.withheld]
    costs = [column for column in COSTS if column in frames.runs and frames.runs[column].notna().any()]
    if not slugs or not costs:
        return None
    # Without enough colours, only the baseline has its own.
    looks = {slug: (palette.colour(slug), palette.marker(slug)) for slug in slugs}
    handles = [(name, colour, "o") for name, colour in palette.legend(slugs).items()]
    markers = {palette.panel(slug): marker for slug, (_, marker) in looks.items()}
    handles += [(name, style.MUTED, markers[name]) for name in palette.panels if name and name in markers]
    if not palette.is_coloured:
        looks = {slug: (style.PALETTE[slug == frames.baseline], "o") for slug in slugs}
        handles = [("baseline", style.PALETTE[1], "o"), ("other variants", style.PALETTE[0], "o")]
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 3.3), layout="constrained")
        grid = figure.subplots(1, len(costs), sharey=True, squeeze=False).ravel()
        for axes, column in zip(grid, costs, strict=True):
            for slug, (colour, marker) in looks.items():
                cost = summarise(list(frames.scores(slug, column).values())).mean
                if math.isfinite(cost):
                    edge = {"markeredgecolor": style.PAPER, "markeredgewidth": 0.7}
                    mean = analysis.summaries[slug].mean
                    (point,) = axes.plot(cost, mean, marker, color=colour, markersize=7, alpha=0.85, **edge)
                    style.tip(figure, point, f"{frames.by_slug[slug].title}: {COSTS[column]} {show_count(cost)}")
            axes.set_xlabel(COSTS[column])
            axes.xaxis.set_major_locator(MaxNLocator(4))
            if not column.endswith("_seconds"):
                axes.xaxis.set_major_formatter(FuncFormatter(_count))
            axes.margins(x=0.12)
        figure.supylabel(readable(analysis.metric), fontsize=9)
        if len(handles) <= MOST_LABELS:
            points = [Line2D([], [], color=colour, marker=marker, linestyle="") for _, colour, marker in handles]
            names = style.shortened([name for name, _, _ in handles])
            figure.legend(points, names, loc="outside upper left", ncols=4)
    return figure


def _count(value: float, _: int) -> str:
    """Return a short count, or all digits if the short count is not exact."""
    short = show_count(value)
    number, _space, unit = short.partition(" ")
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit, 1.0)
    return short if math.isclose(float(number) * size, value, rel_tol=1e-9) else f"{value:,.0f}"
