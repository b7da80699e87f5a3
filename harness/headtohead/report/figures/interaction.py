"""Figure of the interactions between axes; parallel lines mean no interaction."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headtohead.analysis.study import Analysis
from headtohead.config.labels import text
from headtohead.figures import style
from headtohead.statistics.paired_tests import summarise
from headtohead.storage.metrics import readable, span
from headtohead.storage.palette import Palette

MAX_PANELS = 6


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw a panel per pair of fully crossed axes: means with 95 % intervals, averaged over the other axes."""
    frames, palette, metric = analysis.frames, Palette(analysis.frames.record), analysis.metric
    varied = [axis for axis, values in palette.values.items() if len(values) > 1]
    rows = [
        {axis: text(frames.by_slug[slug].axes.get(axis)) for axis in varied} | {"seed": seed, "score": score}
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
        is_crossed = set(groups.size()) == {settings} and (groups.ngroups == number or len(varied) == 2)
        if is_crossed and len(palette.values[pair[1]]) <= len(style.MARKERS):
            panels.append((*pair, {key: own.to_numpy() for key, own in groups.mean().groupby(level=[0, 1])}))
    if not panels:
        return None
    columns = min(len(panels), 2)
    with style.drawing():
        height = 2.9 * -(-min(len(panels), MAX_PANELS) // columns)
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        grid = figure.subplots(round(height / 2.9), columns, squeeze=False, sharey=True).ravel()
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes, (across, lines, means) in zip(grid, panels, strict=False):
            values, coloured = palette.values[across], lines == palette.colour_axis
            for number, name in enumerate(palette.values[lines]):
                # The mean of a missing cell is NaN, which interrupts the line.
                cells = [summarise(means.get((value, name), []), span=span(metric)) for value in values]
                axes.errorbar(
                    [x + (number - (len(palette.values[lines]) - 1) / 2) * 0.06 for x in range(len(values))],
                    [cell.mean for cell in cells],
                    yerr=[cell.high - cell.mean if cell.n > 1 else 0.0 for cell in cells],
                    fmt=style.MARKERS[number % 8] + ("-" if coloured else "--"),
                    color=palette.colour_of(name) if coloured else (style.INK, style.MUTED)[number % 2],
                    linewidth=1.4,
                    markersize=4.5,
                    label=name,
                )
            axes.set_xticks(range(len(values)), values, rotation=90 if len(values) > 8 else 0)
            axes.set_xlim(-0.4, len(values) - 0.6)
            axes.set_xlabel(across)
            axes.yaxis.set_major_locator(MaxNLocator(6))
            legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, title=lines, alignment="left")
            legend.get_title().set_fontweight("bold")
        figure.supylabel(readable(metric), fontsize=9)
    return figure
