"""Figure of the interactions between axes; parallel lines mean no interaction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import readable, span
from headtohead.storage.palette import Palette
from headtohead_judge.paired_tests import Summary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 6
AXIS_WIDTH = 0.8
"""Width of the label and the tick labels beside the panels, in inches."""
SHIFT = 0.06
"""Distance of two lines of a panel, as a fraction of the distance of two values."""
MAX_TICK_LABEL = 24
"""Maximum number of characters of a tick label."""


class Panel(NamedTuple):
    """A pair of axes: one across, a line per value of the other, with the score of each seed by both values."""

    across: str
    lines: str
    scores: Mapping[tuple[str, str], NDArray[np.float64]]


def interaction_figure(analysis: Analysis) -> Figure | None:
    """Draw the first `MAX_PANELS` pairs of varied axes: means with 95 % intervals, averaged over the other axes.

    None if the variants are no grid, or if `_panels` finds no pair whose scores are comparable.
    """
    palette = Palette(analysis.frames.record)
    if not palette.is_grid:
        return None
    panels = _panels(analysis, palette)[:MAX_PANELS]
    if not panels:
        return None
    from matplotlib.figure import Figure

    num_columns = min(len(panels), 2)
    num_rows = math.ceil(len(panels) / num_columns)
    width = (style.WIDTH - AXIS_WIDTH) / num_columns
    with style.drawing():
        heights = []
        for panel in panels:
            names, values = palette.values[panel.lines], palette.values[panel.across]
            heights.append(_panel_height(names, values, width))
        height = max(heights) * num_rows
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        grid = figure.subplots(num_rows, num_columns, squeeze=False, sharey=True).ravel()
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(axes, panel, palette, analysis.metric, width)
        figure.supylabel(readable(analysis.metric), fontsize=9)
    return figure


def _panels(analysis: Analysis, palette: Palette) -> list[Panel]:
    """Return a panel for each pair of axes whose cells are `_comparable`.

    Pairs with more lines than there are markers have no panel. The result is empty if fewer than two axes vary, or
    without a score of a ranked variant.
    """
    varied = [axis for axis, values in palette.values.items() if len(values) > 1]
    scores = _scores_by_axis(analysis, varied)
    if len(varied) < 2 or scores.empty:
        return []
    panels = []
    for across, lines in _oriented_pairs(varied, palette):
        if len(palette.values[lines]) > len(style.MARKERS):
            continue
        num_cells = len(palette.values[across]) * len(palette.values[lines])
        num_groups = num_cells * len(analysis.frames.seeds)
        other_axes = [axis for axis in varied if axis not in (across, lines)]
        if not _comparable(scores, across, lines, other_axes, num_groups):
            continue
        by_cell: dict[Any, NDArray[np.float64]] = {}
        means = scores.groupby([across, lines, "seed"])["score"].mean()
        for key, cell in means.groupby(level=[0, 1]):
            by_cell[key] = cell.to_numpy()
        panels.append(Panel(across, lines, by_cell))
    return panels


def _comparable(
    scores: pd.DataFrame, across: str, lines: str, other_axes: list[str], num_groups: int
) -> bool:
    """Return whether the mean of every cell and seed averages over the same settings of the other axes.

    If some cells averaged over other settings, the differences of cells would contain effects of the other axes. With
    other axes, a missing cell or seed makes the pair not comparable; without other axes, cells and seeds may be
    missing.

    Args:
        scores: The scores with the values of all axes and the seed; at least one.
        across: One axis of the pair.
        lines: Its other axis.
        other_axes: All other varied axes.
        num_groups: Number of cells of the pair, times the number of seeds.
    """
    num_scores = scores.groupby([across, lines, "seed"])["score"].size()
    if not other_axes:
        return set(num_scores) == {1}
    num_settings = len(scores[other_axes].drop_duplicates())
    return len(num_scores) == num_groups and set(num_scores) == {num_settings}


def _oriented_pairs(axes: Sequence[str], palette: Palette) -> list[tuple[str, str]]:
    """Return the pairs of axes, the one across first; the lines have the colours of the axis that has colours."""
    pairs = []
    for first, second in itertools.combinations(axes, 2):
        pairs.append((second, first) if palette.colour_axis == first else (first, second))
    return pairs


def _scores_by_axis(analysis: Analysis, varied: Sequence[str]) -> pd.DataFrame:
    """Return a row per score of a ranked variant: a column of text for each varied axis, ``seed`` and ``score``.

    A variant that lacks an axis has the text ``null``. Without a score, the table has no columns.
    """
    rows = []
    for slug in analysis.ranked:
        variant = analysis.frames.by_slug[slug]
        for seed, score in analysis.frames.scores(slug, analysis.metric).items():
            row: dict[str, Any] = {axis: variant.phrase(axis) for axis in varied}
            row["seed"] = seed
            row["score"] = score
            rows.append(row)
    return pd.DataFrame(rows)


def _draw_panel(axes: Axes, panel: Panel, palette: Palette, metric: str, width: float) -> None:
    """Draw the means of a panel as lines that are shifted against each other, with the legend above.

    A cell without a score interrupts its line. Lines of an axis without colours are dashed, black and grey in turn.

    Args:
        axes: Where to draw.
        panel: The panel, with at most as many lines as there are markers.
        palette: The values of the axes, and the colours of one of them.
        metric: Metric of the scores.
        width: Width of the panel in inches.
    """
    from matplotlib.ticker import MaxNLocator

    values = palette.values[panel.across]
    names = palette.values[panel.lines]
    has_colours = panel.lines == palette.colour_axis
    line_style = "-" if has_colours else "--"
    labels, legend_columns = style.legend_names(names, width, most=2)
    for number, name in enumerate(names):
        colour = (style.INK, style.MUTED)[number % 2]
        if has_colours:
            colour = palette.colour_of(name)
        cells = []
        for value in values:
            cells.append(summarise(panel.scores.get((value, name), []), span=span(metric)))
        shift = (number - (len(names) - 1) / 2) * SHIFT
        axes.errorbar(
            [position + shift for position in range(len(values))],
            [cell.mean for cell in cells],
            yerr=np.transpose([_bars(cell) for cell in cells]),
            fmt=style.MARKERS[number] + line_style,
            color=colour,
            linewidth=1.4,
            markersize=4.5,
            label=labels[number],
        )
    rotation = 90 if _is_rotated(values, width) else 0
    ticks = style.shortened_names(values, MAX_TICK_LABEL)
    axes.set_xticks(range(len(values)), ticks, rotation=rotation)
    axes.set_xlim(-0.4, len(values) - 0.6)
    axes.set_xlabel(palette.axis_name(panel.across))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    legend = axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=legend_columns,
        title=palette.axis_name(panel.lines),
        alignment="left",
    )
    legend.get_title().set_fontweight("bold")


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
