"""Figures with a row per variant or difference: every seed as a point, with mean and interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headtohead.escaping import shortened
from headtohead.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HIDING_RATIO = 4
"""Ratio of two successive sizes of differences from which the larger differences hide the smaller."""

ALL_DIFFERENCES = "all differences"
ZOOMED_IN = "zoomed in"
"""Titles of the panels of a figure in which large differences hide small ones."""


@dataclass(frozen=True)
class Row:
    """A mean with its interval and its points, each with a tooltip; ``name`` is above it on the left, ``note``
    on the right.

    A mean or an interval that is NaN is not drawn. ``colour`` is by default that of ``is_strong``. Points of a row
    that is ``is_hollow`` are outlines; the name of a row that is ``is_baseline`` is bold.
    """

    name: str
    note: str
    mean: float
    low: float = math.nan
    high: float = math.nan
    points: tuple[tuple[float, str], ...] = ()
    colour: str = ""
    is_strong: bool = False
    is_hollow: bool = False
    is_baseline: bool = False

    @property
    def drawn_colour(self) -> str:
        """The colour of points, interval and triangle."""
        if self.colour:
            return self.colour
        return style.PALETTE[0] if self.is_strong else style.MUTED

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest drawn value."""
        values = [self.mean, self.low, self.high]
        values += [value for value, _ in self.points]
        finite = [value for value in values if math.isfinite(value)]
        return min(finite), max(finite)

    @property
    def size(self) -> float:
        """The largest distance of a drawn value from 0."""
        smallest, largest = self.ends
        return max(abs(smallest), abs(largest))


def difference_figure(rows: Sequence[Row], label: str, margin: float = 0.0) -> Figure:
    """Draw differences from top to bottom around a line at 0, with ``label`` below.

    If large differences hide small ones, a second panel magnifies the small differences. Triangles mark differences
    outside the panel. A band ranges from minus to plus the margin, if that is not 0.
    """
    limits = magnified_range(rows, margin)
    titles = ("",) if limits is None else (ALL_DIFFERENCES, ZOOMED_IN)
    figure, panels = row_figure(rows, label, panels=len(titles))
    with style.drawing():
        for axes, title in zip(panels, titles, strict=True):
            axes.set_title(title)
            axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
            if margin:
                axes.axvspan(-margin, margin, color=style.GRID, linewidth=0, zorder=0)
    if limits is not None:
        full, magnified = panels
        magnified.set_xlim(*limits)
        full.locator_params(axis="x", nbins=2)  # else labels touch
        magnified.locator_params(axis="x", nbins=4)
        _mark_outside(magnified, rows, limits)
    return figure


def _mark_outside(axes: Axes, rows: Sequence[Row], limits: tuple[float, float]) -> None:
    """Draw a triangle at the edge of a panel for each mean outside of its limits."""
    low, high = limits
    across = axes.get_yaxis_transform()
    for number, row in enumerate(rows):
        if low <= row.mean <= high:
            continue
        x, marker = (0.012, "<") if row.mean < low else (0.988, ">")
        colour = row.drawn_colour
        axes.plot(x, number, marker, color=colour, markersize=7, transform=across, zorder=5)


def row_figure(rows: Sequence[Row], label: str, *, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure of rows from top to bottom and its panels, all of which have all rows.

    Args:
        rows: The rows.
        label: The label below the axis.
        panels: Number of panels; the second is twice as wide as the first.
    """
    from matplotlib.figure import Figure

    with style.drawing():
        figure = Figure(figsize=(style.WIDTH, 0.85 + 0.46 * len(rows)), layout="constrained")
        ratios = (1, 2)[:panels]
        grid: list[Axes] = list(
            figure.subplots(1, panels, sharey=True, squeeze=False, width_ratios=ratios).ravel()
        )
        for axes in grid:
            style.bare_left(axes)
            for number, row in enumerate(rows):
                _draw(figure, axes, row, number)
            left, right = axes.dataLim.intervalx
            if 0 <= right - left < 1e-9:  # equal values up to rounding
                axes.set_xlim(left - 0.05, right + 0.05)
        grid[0].set_ylim(len(rows) - 0.6, -0.9)
        grid[0].set_yticks([])
        for number, row in enumerate(rows):
            _label(grid[0], grid[-1], row, number)
        figure.supxlabel(label, fontsize=9)
    return figure, grid


def _label(first: Axes, last: Axes, row: Row, number: int) -> None:
    """Write the name of a row above it on the left of the first panel, and its note on the right of the last."""
    background = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.5}
    place: dict[str, Any] = {"y": number - 0.3, "va": "bottom", "bbox": background}
    name = shortened(row.name, 64 - len(row.note))
    weight = "bold" if row.is_baseline else "normal"
    first.text(0, s=name, weight=weight, transform=first.get_yaxis_transform(), **place)
    place["color"] = style.INK if row.is_strong else style.MUTED
    last.text(1, s=row.note, ha="right", transform=last.get_yaxis_transform(), **place)


def magnified_range(rows: Sequence[Row], margin: float = 0.0) -> tuple[float, float] | None:
    """Return the range of the small differences if large differences hide them, else None.

    A difference that is smaller than the margin counts as the margin, and the range contains the margin.
    """
    by_size = sorted(rows, key=lambda row: row.size)
    largest_ratio = 0.0
    count = 0
    sizes = [max(row.size, margin) for row in by_size]
    for number, (before, after) in enumerate(itertools.pairwise(sizes), 1):
        if before == 0:
            continue
        ratio = after / before
        if ratio >= largest_ratio:
            largest_ratio = ratio
            count = number
    if largest_ratio < HIDING_RATIO:
        return None
    small = by_size[:count]
    low = min(-margin, 0.0, *(row.ends[0] for row in small))
    high = max(margin, 0.0, *(row.ends[1] for row in small))
    room = 0.08 * (high - low)
    return low - room, high + room


def _draw(figure: Figure, axes: Axes, row: Row, number: int) -> None:
    """Draw the points, the interval and the mean of a row."""
    colour = row.drawn_colour
    face = "none" if row.is_hollow else colour
    gaps = max(len(row.points) - 1, 1)
    middle = (len(row.points) - 1) / 2
    for index, (value, tooltip) in enumerate(row.points):
        y = number + (index - middle) * 0.28 / gaps
        (point,) = axes.plot(value, y, "o", color=colour, markersize=4.6, alpha=0.7, zorder=3)
        point.set_markerfacecolor(face)
        style.tip(figure, point, tooltip)
    if math.isfinite(row.low):
        ends = [row.low, row.high]
        line: dict[str, Any] = {
            "color": colour,
            "linewidth": 2.3,
            "solid_capstyle": "butt",
            "zorder": 2,
        }
        axes.plot(ends, [number, number], **line)
    if math.isfinite(row.mean):
        mark: dict[str, Any] = {
            "color": style.INK,
            "markersize": 13.5,
            "markeredgewidth": 1.8,
            "zorder": 4,
        }
        axes.plot(row.mean, number, "|", **mark)
