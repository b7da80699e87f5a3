"""Figures of panels: a panel per setting of the axes that the colour does not encode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette

MOST_PANELS = 8
MOST_LINES = 24


def panels_figure(analysis: Analysis, slugs: Sequence[str], draw: Callable[[Axes, str, str], None]) -> Figure:
    """Create the panels and a common legend, and call ``draw(axes, slug, colour)`` for each variant.

    With more than ``MOST_PANELS`` settings, all variants are in a single panel.
    """
    palette = Palette(analysis.frames)
    names = list(dict.fromkeys(palette.panel(slug) for slug in slugs))
    is_single = len(names) > MOST_PANELS
    names = [""] if is_single else names
    columns = min(len(names), 4)
    rows = math.ceil(len(names) / columns)
    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 0.7 + 2.5 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, name in zip(grid, names, strict=False):
            axes.set_title(_wrapped(name, columns))
            for slug in slugs:
                if is_single or palette.panel(slug) == name:
                    draw(axes, slug, palette.colour(slug))
        for axes in grid[len(names) :]:
            axes.set_visible(False)
        _legend(figure, palette, slugs)
    return figure


def _wrapped(name: str, columns: int) -> str:
    """Return the title on two lines if it would overlap the next panel's title."""
    parts = name.split(" · ")
    if columns < 3 or len(name) < 24 or len(parts) < 2:
        return name
    half = (len(parts) + 1) // 2
    return " · ".join(parts[:half]) + " ·\n" + " · ".join(parts[half:])


def _legend(figure: Figure, palette: Palette, slugs: Sequence[str]) -> None:
    named = palette.legend(slugs)
    handles = [Line2D([], [], color=colour, linewidth=2.4) for colour in named.values()]
    figure.legend(
        handles,
        style.shortened(list(named)),
        loc="outside upper left",
        ncols=min(len(named), 5 if palette.colour_axis else 3),
        title=palette.colour_axis,
        alignment="left",
        title_fontsize=8.5,
    )


def select_variants(analysis: Analysis, slugs: Sequence[str]) -> list[str]:
    """Return at most `MOST_LINES` of the variants, the best and the baseline, in the order of the design."""
    ordered = [slug for slug in analysis.order if slug in set(slugs)]
    best = ordered[:MOST_LINES]
    if analysis.frames.baseline in ordered and analysis.frames.baseline not in best:
        best[-1] = analysis.frames.baseline
    return [slug for slug in analysis.frames.by_slug if slug in set(best)]
