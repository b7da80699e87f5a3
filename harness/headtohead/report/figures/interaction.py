"""Does the effect of one axis depend on another? Parallel lines say no."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import label, readable

MOST_PANELS = 6
MOST_NAMES = 2
"""Settings that a panel's title names one by one."""
MOST_LINES = 16
"""More lines are hard to distinguish, and more names do not fit side by side."""


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw each pair of axes: means with intervals, averaged over the settings that all share."""
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
    columns, rows = (_sorted(palette.values[axis]) for axis in (across, lines))
    panel = panel_cells(analysis, across, lines)
    coloured = lines == palette.colour_axis
    for line, value in enumerate(rows):
        shift = (line - (len(rows) - 1) / 2) * 0.06
        cells = [
            (x + shift, summarise(panel.scores[other, value]))
            for x, other in enumerate(columns)
            if (other, value) in panel.scores
        ]
        cells = [(x, summary) for x, summary in cells if summary.n]
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
    axes.set_xticks(range(len(columns)), columns)
    if len(columns) > MOST_LINES:
        axes.tick_params(axis="x", rotation=90, labelsize=7)
    axes.set_xlim(-0.4, len(columns) - 0.6)
    axes.set_xlabel(across)
    axes.set_title(f"{lines}, by {across}" + (f"\n{panel.note}" if panel.note else ""))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.legend(loc="best")


def _sorted(values: Sequence[str]) -> list[str]:
    """Return values in ascending order where all are numbers, else as they are."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return list(values)


@dataclass(frozen=True)
class PanelCells:
    """The points of one panel.

    ``scores`` holds, for a value across and a line's value, one mean per seed over the common
    settings. ``note`` names these where the design has more.
    """

    scores: Mapping[tuple[str, str], list[float]]
    note: str


def panel_cells(analysis: Analysis, across: str, lines: str) -> PanelCells:
    """Average each pair of values over the settings of the other axes that all drawn pairs have.

    The settings are those that the largest number of pairs share; a pair without them is not drawn.
    """
    frames = analysis.frames
    others = [axis for axis in frames.axes if axis not in (across, lines)]
    having: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for slug, variant in frames.variants.items():
        values = {axis: label(variant["axes"].get(axis)) for axis in frames.axes}
        if slug not in analysis.withheld:
            setting = tuple(values[axis] for axis in others)
            having.setdefault(setting, {})[values[across], values[lines]] = slug
    if not having:
        return PanelCells({}, "")
    drawn = max(having.values(), key=len).keys()
    common = [setting for setting, cells in having.items() if drawn <= cells.keys()]
    scores = {pair: _by_seed(analysis, [having[setting][pair] for setting in common]) for pair in drawn}
    if len(common) == len(having):
        return PanelCells(scores, "")
    if len(common) > MOST_NAMES:
        return PanelCells(scores, f"at {len(common)} common settings")
    named = (" · ".join(map(" ".join, zip(others, setting, strict=True))) for setting in common)
    return PanelCells(scores, f"at {' and '.join(named)}")


def _by_seed(analysis: Analysis, slugs: Sequence[str]) -> list[float]:
    """Return the mean over variants for each seed that all of them have."""
    columns = [analysis.frames.scores(slug, analysis.metric) for slug in slugs]
    shared = set.intersection(*(set(column) for column in columns))
    return [float(np.mean([column[seed] for column in columns])) for seed in sorted(shared)]
