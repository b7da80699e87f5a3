"""Figures with a row per variant or difference: every seed as a point, with mean and interval."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.figures import style

HIDING_RATIO = 4
"""Ratio of two successive sizes of differences from which the larger differences hide the smaller."""


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
        return self.colour or (style.PALETTE[0] if self.is_strong else style.MUTED)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest drawn value."""
        values = [value for value, _ in self.points] + [self.mean, self.low, self.high]
        finite = [value for value in values if math.isfinite(value)]
        return min(finite), max(finite)

    @property
    def size(self) -> float:
        """The largest distance of a drawn value from 0."""
        return max(abs(end) for end in self.ends)


def difference_figure(rows: Sequence[Row], label: str) -> Figure:
    """Draw differences from top to bottom around a line at 0, with ``label`` below.

    If large differences hide small ones, a second panel magnifies the small differences. Triangles mark differences
    outside the panel.
    """
    limits = magnified_range(rows)
    figure, panels = row_figure(rows, label, panels=2 if limits else 1)
    with style.drawing():
        for axes, title in zip(
            panels, ("full range", "magnified") if limits else ("",), strict=True
        ):
            axes.set_title(title)
            axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
    if limits:
        low, high = limits
        panels[1].set_xlim(low, high)
        for axes, intervals in zip(panels, (2, 4), strict=True):  # else labels touch
            axes.locator_params(axis="x", nbins=intervals)
        across = panels[1].get_yaxis_transform()
        for number, row in enumerate(rows):
            if not low <= row.mean <= high:
                x, marker = (0.012, "<") if row.mean < low else (0.988, ">")
                panels[1].plot(
                    x,
                    number,
                    marker,
                    color=row.drawn_colour,
                    markersize=7,
                    transform=across,
                    zorder=5,
                )
    return figure


def row_figure(rows: Sequence[Row], label: str, *, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure of rows from top to bottom and its panels, all of which have all rows.

    Args:
        rows: The rows.
        label: The label below the axis.
        panels: Number of panels; the second is twice as wide as the first.
    """
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
            name, weight = (
                style.shortened([row.name], 64 - len(row.note))[0],
                "bold" if row.is_baseline else "normal",
            )
            place: dict[str, Any] = {"y": number - 0.3, "va": "bottom"}
            place["bbox"] = {"facecolor": style.PAPER, "edgecolor": "none", "pad": 0.5}
            grid[0].text(0, s=name, weight=weight, transform=grid[0].get_yaxis_transform(), **place)
            colour = style.INK if row.is_strong else style.MUTED
            grid[-1].text(
                1,
                s=row.note,
                color=colour,
                ha="right",
                transform=grid[-1].get_yaxis_transform(),
                **place,
            )
        figure.supxlabel(label, fontsize=9)
    return figure, grid


def magnified_range(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the range of the small differences if large differences hide them, else None."""
    by_size = sorted(rows, key=lambda row: row.size)
    steps = [
        (after.size / before.size, index)
        for index, (before, after) in enumerate(itertools.pairwise(by_size), 1)
        if before.size > 0
    ]
    ratio, count = max(steps, default=(0.0, 0))
    if ratio < HIDING_RATIO:
        return None
    low = min(0.0, *(row.ends[0] for row in by_size[:count]))
    high = max(0.0, *(row.ends[1] for row in by_size[:count]))
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _draw(figure: Figure, axes: Axes, row: Row, number: int) -> None:
    colour = row.drawn_colour
    for index, (value, tooltip) in enumerate(row.points):
        offset = (index - (len(row.points) - 1) / 2) * 0.28 / max(len(row.points) - 1, 1)
        (point,) = axes.plot(
            value, number + offset, "o", color=colour, markersize=4.6, alpha=0.7, zorder=3
        )
        point.set_markerfacecolor("none" if row.is_hollow else colour)
        style.tip(figure, point, tooltip)
    if math.isfinite(row.low):
        axes.plot(
            [row.low, row.high],
            [number, number],
            color=colour,
            linewidth=2.3,
            solid_capstyle="butt",
            zorder=2,
        )
    if math.isfinite(row.mean):
        axes.plot(
            row.mean, number, "|", color=style.INK, markersize=13.5, markeredgewidth=1.8, zorder=4
        )
