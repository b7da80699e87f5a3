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

    With more variants than colours, or more than ``MOST_PANELS`` settings, each variant has a panel of its own in
    which the baseline is grey.
    """
    palette = Palette(analysis.frames)
    names = list(dict.fromkeys(palette.panel(slug) for slug in slugs))
    if not palette.is_coloured or len(names) > MOST_PANELS:
        return _facets(analysis, slugs, draw)
    columns = min(len(names), 4)
    with style.drawing():
        figure, grid = _grid(len(names), columns, 2.5)
        for axes, name in zip(grid, names, strict=False):
            axes.set_title(_wrapped(name, columns))
            for slug in slugs:
                if palette.panel(slug) == name:
                    draw(axes, slug, palette.colour(slug))
        _legend(figure, palette, slugs)
    return figure


def _facets(analysis: Analysis, slugs: Sequence[str], draw: Callable[[Axes, str, str], None]) -> Figure:
    """Draw each variant in a panel of its own, with the baseline for comparison."""
    baseline = analysis.frames.baseline
    with style.drawing():
        figure, grid = _grid(len(slugs), 6, 1.5)
        titles = style.shortened([analysis.frames.by_slug[slug].title for slug in slugs], 26)
        for axes, slug, title in zip(grid, slugs, titles, strict=False):
            axes.set_title(title, fontsize=7.5)
            axes.tick_params(labelsize=7.5)
            if baseline in slugs:
                draw(axes, baseline, style.MUTED)
            if slug != baseline:
                draw(axes, slug, style.PALETTE[0])
        lines = {"baseline": style.MUTED, "variant of the panel": style.PALETTE[0]}
        handles = [Line2D([], [], color=colour, linewidth=2.4) for colour in lines.values()]
        figure.legend(handles, list(lines), loc="outside upper left", ncols=2)
    return figure


def _grid(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels of ``height`` inches, and its visible panels."""
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(style.WIDTH, 0.7 + height * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count]


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
