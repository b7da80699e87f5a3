"""Figure of the interactions between axes; parallel lines mean no interaction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.report.figures.palette import Palette
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import label, readable, span

MOST_PANELS = 6
MOST_NAMES = 2
"""Maximum number of settings that a panel's title names."""
MOST_LINES = len(style.PALETTE)
"""Maximum number of lines of a panel, and of horizontal tick labels."""


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw a panel per pair of axes: means with 95 % intervals, averaged over the common settings of the pairs."""
    palette = Palette(analysis.frames)
    pairs = _pairs(palette)
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


def _pairs(palette: Palette) -> list[tuple[str, str]]:
    """Return the x axis and the axis drawn as lines of each panel, without pairs with too many values for lines."""
    pairs = []
    for pair in itertools.combinations([axis for axis, values in palette.values.items() if len(values) > 1], 2):
        across, lines = reversed(pair) if pair[0] == palette.colour_axis else pair
        if len(palette.values[lines]) > MOST_LINES:
            across, lines = lines, across
        if len(palette.values[lines]) <= MOST_LINES:
            pairs.append((across, lines))
    return pairs[:MOST_PANELS]


def _panel(axes: Axes, analysis: Analysis, palette: Palette, across: str, lines: str) -> None:
    columns, rows = (_sorted(palette.values[axis]) for axis in (across, lines))
    scores, note = panel_cells(analysis, across, lines)
    coloured = lines == palette.colour_axis
    for line, value in enumerate(rows):
        shift = (line - (len(rows) - 1) / 2) * 0.06
        # The mean of a missing cell is NaN, which interrupts the line.
        cells = [summarise(scores.get((other, value), []), span=span(analysis.metric)) for other in columns]
        axes.errorbar(
            [x + shift for x in range(len(columns))],
            [summary.mean for summary in cells],
            yerr=[summary.high - summary.mean if summary.n > 1 else 0.0 for summary in cells],
            fmt=style.MARKERS[line % 8] + ("-" if coloured else "--"),
            color=palette.colour_of(value) if coloured else (style.INK, style.MUTED)[line % 2],
            linewidth=1.4,
            markersize=4.5,
            label=value,
        )
    axes.set_xticks(range(len(columns)), columns)
    if len(columns) > MOST_LINES:
        axes.tick_params(axis="x", rotation=90, labelsize=7.5)
    axes.set_xlim(-0.4, len(columns) - 0.6)
    axes.set_xlabel(across)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    title = f"{lines}, by {across}" + (f"\n{note}" if note else "")
    legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, title=title, alignment="left")
    legend.get_title().set_fontweight("bold")


def _sorted(values: Sequence[str]) -> list[str]:
    """Return values in ascending order if all are numbers, otherwise unchanged."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return list(values)


def panel_cells(analysis: Analysis, across: str, lines: str) -> tuple[dict[tuple[str, str], list[float]], str]:
    """Return the scores of each pair of values, averaged over the settings of the other axes that all pairs share.

    The scores are means over the common settings, a number per seed, by the values of the x axis and of the line. The
    text names the common settings if the design has others. The pairs are those of the setting with the most pairs;
    other pairs are not drawn.
    """
    frames = analysis.frames
    others = [axis for axis in frames.axes if axis not in (across, lines)]
    by_setting: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
    for slug, variant in frames.by_slug.items():
        values = {axis: label(variant.axes.get(axis)) for axis in frames.axes}
        if slug not in analysis.withheld:
            setting = tuple(values[axis] for axis in others)
            by_setting.setdefault(setting, {})[values[across], values[lines]] = slug
    if not by_setting:
        return {}, ""
    drawn = max(by_setting.values(), key=len).keys()
    common = [setting for setting, cells in by_setting.items() if drawn <= cells.keys()]
    scores = {}
    for pair in drawn:
        columns = [frames.scores(by_setting[setting][pair], analysis.metric) for setting in common]
        shared = sorted(set.intersection(*map(set, columns)))
        scores[pair] = [float(np.mean([column[seed] for column in columns])) for seed in shared]
    if len(common) == len(by_setting):
        return scores, ""
    if len(common) > MOST_NAMES:
        return scores, f"at {len(common)} common settings"
    names = (" · ".join(map(" ".join, zip(others, setting, strict=True))) for setting in common)
    return scores, f"at {' and '.join(names)}"
