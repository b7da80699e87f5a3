"""Forest plots: differences with their seeds, mean and interval, a row each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.figures import style

HIDING_RATIO = 4
"""Ratio of two successive sizes of differences from which the larger differences hide the smaller."""


@dataclass(frozen=True)
class ForestRow:
    """A difference: its name, the note on its right, and its points with their tooltips.

    ``low`` and ``high`` are the ends of the interval, NaN without one. ``is_strong`` colours the row.
    """

    name: str
    note: str
    mean: float
    low: float
    high: float
    points: tuple[tuple[float, str], ...] = ()
    is_strong: bool = False

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


def forest(rows: Sequence[ForestRow], label: str) -> Figure:
    """Draw rows from top to bottom, with ``label`` below the axis.

    If large differences hide small ones, a second panel magnifies the small differences. Triangles mark differences
    outside the panel.
    """
    limits = magnified_range(rows)
    with style.drawing():
        figure = style.row_figure(len(rows))
        if limits:
            panels = list(figure.subplots(1, 2, sharey=True, width_ratios=(1, 2)))
            panels[0].set_title("full range")
            panels[1].set_title("magnified")
        else:
            panels = [figure.add_subplot()]
        for axes in panels:
            style.bare_left(axes)
            axes.axvline(0, color=style.INK, linewidth=1.0, zorder=1)
            for number, row in enumerate(rows):
                _draw(figure, axes, row, number)
        if limits:
            _magnify(panels[-1], rows, limits)
        style.name_rows(panels[0], [row.name for row in rows])
        style.note_rows(panels[-1], [row.note for row in rows], [row.is_strong for row in rows])
        figure.supxlabel(label, fontsize=9)
    return figure


def magnified_range(rows: Sequence[ForestRow]) -> tuple[float, float] | None:
    """Return the range of the small differences if larger ones hide them, else None."""
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


def _magnify(axes: Axes, rows: Sequence[ForestRow], limits: tuple[float, float]) -> None:
    """Limit the axes, and mark the differences outside."""
    low, high = limits
    axes.set_xlim(low, high)
    for number, row in enumerate(rows):
        if not low <= row.mean <= high:
            x, marker = (0.012, "<") if row.mean < low else (0.988, ">")
            axes.plot(
                x, number, marker, color=_colour(row), markersize=7, transform=axes.get_yaxis_transform(), zorder=5
            )


def _draw(figure: Figure, axes: Axes, row: ForestRow, number: int) -> None:
    colour = _colour(row)
    style.seed_points(figure, axes, number, row.points, colour, alpha=0.6)
    if math.isfinite(row.low):
        axes.plot([row.low, row.high], [number, number], color=colour, linewidth=2.4, solid_capstyle="butt", zorder=2)
    axes.plot(row.mean, number, "|", color=style.INK, markersize=14, markeredgewidth=1.8, zorder=4)


def _colour(row: ForestRow) -> str:
    return style.PALETTE[0] if row.is_strong else style.MUTED
