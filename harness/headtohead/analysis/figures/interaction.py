"""Does the effect of one axis depend on another? Parallel lines say no."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.figures import style
from headtohead.analysis.figures.style import Palette
from headtohead.analysis.metrics import label, readable
from headtohead.analysis.statistics import summarise
from headtohead.analysis.study import Analysis

MOST_PANELS = 6
MOST_LINES = 16
"""Lines beyond this cannot be told apart, and names side by side cannot be read."""


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw each pair of axes: means with intervals, averaged within each seed over the rest."""
    palette = Palette(analysis.frames)
    varying = [axis for axis, values in palette.values.items() if len(values) > 1]
    pairs = [laid for pair in itertools.combinations(varying, 2) if (laid := _laid(pair, palette))]
    pairs = pairs[:MOST_PANELS]
    if not palette.is_grid or not pairs:
        return None
    with style.drawing():
        columns = min(len(pairs), 3)
        rows = -(-len(pairs) // columns)
        figure = Figure(figsize=(style.WIDTH, 2.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes, (across, lines) in zip(grid, pairs, strict=False):
            _panel(axes, analysis, palette, across, lines)
        for axes in grid[len(pairs) :]:
            axes.set_visible(False)
        figure.supylabel(readable(analysis.metric), fontsize=9)
    return figure


def _laid(pair: tuple[str, str], palette: Palette) -> tuple[str, str] | None:
    """Return which of two axes lies across and which is drawn as lines, if either can be."""
    across, lines = reversed(pair) if pair[0] == palette.colour_axis else pair
    if len(palette.values[lines]) > MOST_LINES:
        across, lines = lines, across
    return (across, lines) if len(palette.values[lines]) <= MOST_LINES else None


def _panel(axes: Axes, analysis: Analysis, palette: Palette, across: str, lines: str) -> None:
    for line, value in enumerate(palette.values[lines]):
        shift = (line - (len(palette.values[lines]) - 1) / 2) * 0.06
        cells = [
            (x + shift, summarise(_cell(analysis, {across: other, lines: value})))
            for x, other in enumerate(palette.values[across])
        ]
        cells = [(x, summary) for x, summary in cells if summary.n]
        coloured = lines == palette.colour_axis
        axes.errorbar(
            [x for x, _ in cells],
            [summary.mean for _, summary in cells],
            yerr=[summary.high - summary.mean if summary.n > 1 else 0.0 for _, summary in cells],
            fmt=f"{style.MARKERS[line % 8]}-" if coloured else f"{style.MARKERS[line % 8]}--",
            color=palette.value_colour(value) if coloured else (style.INK, style.MUTED)[line % 2],
            linewidth=1.4,
            markersize=4.5,
            label=value,
        )
    names = palette.values[across]
    axes.set_xticks(range(len(names)), names)
    if len(names) > MOST_LINES:
        axes.tick_params(axis="x", rotation=90, labelsize=7)
    axes.set_xlim(-0.4, len(palette.values[across]) - 0.6)
    axes.set_title(f"{lines}, by {across}")
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.legend(loc="best")


def _cell(analysis: Analysis, wanted: dict[str, str]) -> list[float]:
    """Return one value per seed: the mean over the variants that have these axis values.

    Only seeds that all of those variants have count, so that no cell mixes seeds and settings.
    """
    frames = analysis.frames
    slugs = [
        slug
        for slug, variant in frames.variants.items()
        if slug not in analysis.withheld
        and all(label(variant["axes"].get(axis)) == value for axis, value in wanted.items())
    ]
    columns = [frames.scores(slug, analysis.metric) for slug in slugs]
    if not columns:
        return []
    shared = set.intersection(*(set(column) for column in columns))
    return [float(np.mean([column[seed] for column in columns])) for seed in sorted(shared)]
