"""What a score costs: parameters, FLOPs and time beside it."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.report.figures.strip import drawn
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import readable, show_count

COSTS = (
    ("parameters/total", "parameters"),
    ("flops_per_token", "FLOPs per token"),
    ("system/train_seconds", "training time, s"),
)


def cost_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean score against each cost; nothing to draw without scores."""
    slugs = [slug for slug in drawn(analysis) if slug not in analysis.withheld]
    costs = [(c, name) for c, name in COSTS if c in analysis.frames.runs and analysis.frames.runs[c].notna().any()]
    if not slugs or not costs:
        return None
    palette = Palette(analysis.frames)
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 3.3), layout="constrained")
        grid = figure.subplots(1, len(costs), sharey=True, squeeze=False).ravel()
        for axes, (column, name) in zip(grid, costs, strict=True):
            for slug in slugs:
                costs_by_seed = analysis.frames.scores(slug, column)
                cost = summarise(list(costs_by_seed.values())).mean
                if math.isfinite(cost):
                    (point,) = axes.plot(
                        cost,
                        analysis.summaries[slug].mean,
                        palette.marker(slug),
                        color=palette.colour(slug),
                        markersize=7,
                        alpha=0.85,
                        markeredgecolor=style.PAPER,
                        markeredgewidth=0.7,
                    )
                    title = analysis.frames.variants[slug]["title"]
                    style.tip(figure, point, f"{title}: {name} {show_count(cost)}")
            axes.set_xlabel(name)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            if not column.endswith("_seconds"):
                axes.xaxis.set_major_formatter(FuncFormatter(_count))
            axes.margins(x=0.12)
        figure.supylabel(readable(analysis.metric), fontsize=9)
        _legend(figure, palette, slugs)
    return figure


def _count(value: float, _: int) -> str:
    """Return a short count, or all digits where short ones would not tell ticks apart."""
    short = show_count(value)
    number, _space, unit = short.partition(" ")
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit, 1.0)
    exact = math.isclose(float(number) * size, value, rel_tol=1e-9)
    return short if exact else f"{value:,.0f}"


def _legend(figure: Figure, palette: Palette, slugs: list[str]) -> None:
    colours = palette.legend(slugs)
    shown = {palette.panel(slug): palette.marker(slug) for slug in slugs}
    marks = {panel: shown[panel] for panel in palette.panels if panel and panel in shown}
    handles = [Line2D([], [], color=c, marker="o", linestyle="") for c in colours.values()]
    handles += [Line2D([], [], color=style.MUTED, marker=m, linestyle="") for m in marks.values()]
    names = [*colours, *marks]
    if len(names) <= 14:
        figure.legend(handles, style.shortened(names), loc="outside upper left", ncols=4)
