"""Figure of the score against parameters, FLOPs and training time."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.report.figures.rows import drawn_variants
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import readable, show_count

COSTS = (
    ("parameters/total", "parameters"),
    ("flops_per_token", "FLOPs per token"),
    ("system/train_seconds", "training time, s"),
)


def cost_figure(analysis: Analysis) -> Figure | None:
    """Draw each variant's mean score against each cost, or return None without scores or costs."""
    slugs = [slug for slug in drawn_variants(analysis) if slug not in analysis.withheld]
    runs = analysis.frames.runs
    costs = [(column, name) for column, name in COSTS if column in runs and runs[column].notna().any()]
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
                        palette.marker(slug) if palette.is_coloured else "o",
                        color=_colour(analysis, palette, slug),
                        markersize=7,
                        alpha=0.85,
                        markeredgecolor=style.PAPER,
                        markeredgewidth=0.7,
                    )
                    title = analysis.frames.by_slug[slug].title
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
    """Return a short count, or all digits if the short count is not exact."""
    short = show_count(value)
    number, _space, unit = short.partition(" ")
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(unit, 1.0)
    exact = math.isclose(float(number) * size, value, rel_tol=1e-9)
    return short if exact else f"{value:,.0f}"


def _colour(analysis: Analysis, palette: Palette, slug: str) -> str:
    is_highlighted = not palette.is_coloured and slug == analysis.frames.baseline
    return style.PALETTE[1] if is_highlighted else palette.colour(slug)


def _legend(figure: Figure, palette: Palette, slugs: list[str]) -> None:
    if not palette.is_coloured:
        names = {"baseline": style.PALETTE[1], "other variants": style.PALETTE[0]}
        points = [Line2D([], [], color=colour, marker="o", linestyle="") for colour in names.values()]
        figure.legend(points, list(names), loc="outside upper left", ncols=2)
        return
    colours = palette.legend(slugs)
    used = {palette.panel(slug): palette.marker(slug) for slug in slugs}
    markers = {panel: used[panel] for panel in palette.panels if panel and panel in used}
    handles = [Line2D([], [], color=colour, marker="o", linestyle="") for colour in colours.values()]
    handles += [Line2D([], [], color=style.MUTED, marker=marker, linestyle="") for marker in markers.values()]
    labels = [*colours, *markers]
    if len(labels) <= 14:
        figure.legend(handles, style.shortened(labels), loc="outside upper left", ncols=4)
