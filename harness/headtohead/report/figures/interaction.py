"""Figure of the interactions between axes; parallel lines mean no interaction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.config.labels import text
from headtohead.figures import style
from headtohead.storage.metrics import readable, span
from headtohead.storage.palette import Palette
from headtohead_judge.paired_tests import Summary, summarise

MAX_PANELS = 6
AXIS_WIDTH = 0.8
"""Width of the label and the tick labels beside the panels, in inches."""
MAX_TICK_LABEL = 24
"""Maximum number of characters of a tick label."""


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw a panel per pair of fully crossed axes: means with 95 % intervals, averaged over the other axes."""
    frames, palette, metric = analysis.frames, Palette(analysis.frames.record), analysis.metric
    varied = [axis for axis, values in palette.values.items() if len(values) > 1]
    rows = [
        {axis: text(frames.by_slug[slug].axes.get(axis)) for axis in varied}
        | {"seed": seed, "score": score}
        for slug in analysis.ranked
        for seed, score in frames.scores(slug, metric).items()
    ]
    if not palette.is_grid or len(varied) < 2 or not rows:
        return None
    panels: list[tuple[str, str, dict[Any, Any]]] = []
    for across, lines in itertools.combinations(varied, 2):
        pair = (lines, across) if palette.colour_axis == across else (across, lines)
        groups = pd.DataFrame(rows).groupby([*pair, "seed"])["score"]
        number = len(palette.values[across]) * len(palette.values[lines]) * len(frames.seeds)
        # Each mean must average over the same settings of the other axes, else an effect of those would be in it.
        settings = len({tuple(row[axis] for axis in varied if axis not in pair) for row in rows})
        is_crossed = set(groups.size()) == {settings} and (
            groups.ngroups == number or len(varied) == 2
        )
        if is_crossed and len(palette.values[pair[1]]) <= len(style.MARKERS):
            panels.append(
                (*pair, {key: own.to_numpy() for key, own in groups.mean().groupby(level=[0, 1])})
            )
    if not panels:
        return None
    columns = min(len(panels), 2)
    rows_of_panels = math.ceil(min(len(panels), MAX_PANELS) / columns)
    width = (style.WIDTH - AXIS_WIDTH) / columns
    with style.drawing():
        height = max(
            _panel_height(palette.values[lines], palette.values[across], width)
            for across, lines, _ in panels
        )
        figure = Figure(figsize=(style.WIDTH, height * rows_of_panels), layout="constrained")
        grid = figure.subplots(rows_of_panels, columns, squeeze=False, sharey=True).ravel()
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes, (across, lines, means) in zip(grid, panels, strict=False):
            values, coloured = palette.values[across], lines == palette.colour_axis
            labels, legend_columns = style.legend_names(palette.values[lines], width, most=2)
            for number, name in enumerate(palette.values[lines]):
                # The mean of a missing cell is NaN, which interrupts the line.
                cells = [
                    summarise(means.get((value, name), []), span=span(metric)) for value in values
                ]
                axes.errorbar(
                    [
                        x + (number - (len(palette.values[lines]) - 1) / 2) * 0.06
                        for x in range(len(values))
                    ],
                    [cell.mean for cell in cells],
                    yerr=np.transpose([_bars(cell) for cell in cells]),
                    fmt=style.MARKERS[number % 8] + ("-" if coloured else "--"),
                    color=palette.colour_of(name)
                    if coloured
                    else (style.INK, style.MUTED)[number % 2],
                    linewidth=1.4,
                    markersize=4.5,
                    label=labels[number],
                )
            rotation = 90 if _is_rotated(values, width) else 0
            axes.set_xticks(
                range(len(values)), style.shortened(values, MAX_TICK_LABEL), rotation=rotation
            )
            axes.set_xlim(-0.4, len(values) - 0.6)
            axes.set_xlabel(across)
            axes.yaxis.set_major_locator(MaxNLocator(6))
            legend = axes.legend(
                loc="lower left",
                bbox_to_anchor=(0, 1),
                ncols=legend_columns,
                title=lines,
                alignment="left",
            )
            legend.get_title().set_fontweight("bold")
        figure.supylabel(readable(metric), fontsize=9)
    return figure


def _bars(cell: Summary) -> tuple[float, float]:
    """Return the lengths of the interval below and above a mean; 0 without an interval."""
    if cell.n < 2:
        return 0.0, 0.0
    return cell.mean - cell.low, cell.high - cell.mean


def _panel_height(names: Sequence[str], values: Sequence[str], width: float) -> float:
    """Return the height of a panel in inches, with a legend of ``names`` and tick labels of ``values``."""
    _, columns = style.legend_names(names, width, most=2)
    further_rows = max(0, math.ceil(len(names) / columns) - 2)
    height = 2.9 + further_rows * style.LEGEND_ROW_HEIGHT
    if _is_rotated(values, width):
        height += min(MAX_TICK_LABEL, max(map(len, values))) * style.CHARACTER_WIDTH
    return height


def _is_rotated(values: Sequence[str], width: float) -> bool:
    """Return whether the tick labels of a panel are vertical, because they would overlap."""
    longest = min(MAX_TICK_LABEL, max(map(len, values)))
    return len(values) > 8 or len(values) * longest * style.CHARACTER_WIDTH > width
