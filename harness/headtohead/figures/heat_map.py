"""Heat maps: matrices as coloured cells, blue where they are positive and orange where they are negative."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray

from headtohead.figures import style
from headtohead.figures.style import MUTED, PALETTE, PAPER

HIDDEN = "#dfe2e6"
"""Colour of masked cells."""

BLUE, ORANGE = PALETTE[:2]
POSITIVE = LinearSegmentedColormap.from_list("positive", [PAPER, BLUE]).with_extremes(bad=HIDDEN)
SIGNED = LinearSegmentedColormap.from_list("signed", [ORANGE, PAPER, BLUE], N=257).with_extremes(bad=HIDDEN)
NEGATIVE = LinearSegmentedColormap.from_list("negative", [ORANGE, PAPER]).with_extremes(bad=HIDDEN)


@dataclass(frozen=True)
class ColourRange:
    """The numbers at both ends of a colour scale; 0 is white.

    A range with negative and positive numbers is symmetric, so that equal sizes are equally dark.
    """

    low: float
    high: float

    @classmethod
    def of(cls, *matrices: ArrayLike, probabilities: bool = False) -> ColourRange:
        """Return the range that covers all finite entries of the matrices.

        Args:
            matrices: Of any shape; NaN marks masked cells.
            probabilities: End the range at exactly 1 where the largest entry rounds to 1.
        """
        values = np.concatenate([np.ravel(np.asarray(matrix, dtype=float)) for matrix in matrices])
        values = values[np.isfinite(values)]
        low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
        if low < -1e-9 * max(1.0, high):
            largest = max(-low, high)
            return cls(-largest, largest if high > 1e-9 * largest else 0.0)
        return cls(0.0, 1.0 if high == 0 or (probabilities and high > 0.999) else high)

    @property
    def colours(self) -> Colormap:
        """Return the colour map from ``low`` to ``high``."""
        if self.low == 0:
            return POSITIVE
        return SIGNED if self.high > 0 else NEGATIVE


def heat_map(
    axes: Axes,
    matrix: ArrayLike,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    *,
    colour_range: ColourRange | None = None,
) -> AxesImage:
    """Draw ``matrix`` ``[row, column]`` with its row and column names, and return the image.

    Args:
        axes: Where to draw; its grid and frame are replaced.
        matrix: Numbers; NaN cells are masked and drawn in grey.
        rows: Name of each row, or nothing for no labels. Of more than 10 numbers every fifth is shown.
        columns: Name of each column; names longer than two letters are written upwards.
        colour_range: Range of the colours, to share between maps; by default that of ``matrix``.
    """
    values: NDArray[Any] = np.asarray(matrix, dtype=float)
    chosen = colour_range or ColourRange.of(values)
    image = axes.imshow(
        np.ma.masked_invalid(values), cmap=chosen.colours, vmin=chosen.low, vmax=chosen.high, aspect="equal"
    )
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.tick_params(length=0)
    height, width = values.shape
    lines: dict[str, Any] = {"color": PAPER, "linewidth": 0.6}
    axes.vlines(np.arange(1, width) - 0.5, -0.5, height - 0.5, **lines)
    axes.hlines(np.arange(1, height) - 0.5, -0.5, width - 0.5, **lines)
    steep = max(map(len, columns), default=0) > 2
    axes.set_xticks(*_labels(columns), rotation=90 if steep else 0)
    axes.set_yticks(*_labels(rows))
    for spine in axes.spines.values():
        spine.set_edgecolor(MUTED)
    return image


def _labels(names: Sequence[str]) -> tuple[list[int], list[str]]:
    step = 5 if len(names) > 10 and all(name.isdigit() for name in names) else 1
    return list(range(0, len(names), step)), list(names[::step])


PIXELS_PER_INCH = 96
CELL = 17
"""Side of a cell in pixels; wider where cells hold a text."""
LONGEST_LABEL = 14
TITLE_WIDTH = 32
"""Characters in a line of a title."""


@dataclass(frozen=True)
class HeatMap:
    """One matrix ``[row, column]`` with its labels; NaN marks a cell that is hidden.

    ``texts`` holds a text for every cell, such as its number.
    """

    values: NDArray[np.floating[Any]] = field(repr=False)
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    texts: Sequence[Sequence[str]] | None = None


def heat_map_figure(
    maps: Sequence[HeatMap], *, limit: float | None = 1.0, across: int = 3, row_axis: str = "", column_axis: str = ""
) -> Figure:
    """Draw matrices as coloured cells without interpolation, all on the same scale.

    Positive values are blue, negative ones orange, and the colour is full at ``limit``; colours are
    transparent, so that the figure suits light and dark pages. Hidden cells are grey.

    Args:
        maps: What to draw, in reading order.
        limit: Size of a value with the full colour; None takes the largest size of all maps.
        across: Maps in a row, fewer where the page is too narrow.
        row_axis: Meaning of rows, written at the left of the first map.
        column_axis: Meaning of columns, written below the first map.
    """
    full = limit or max((float(np.nanmax(np.abs(each.values), initial=0.0)) for each in maps), default=0.0) or 1.0
    cell = max([CELL, *(8 + 5.5 * len(text) for each in maps for row in each.texts or () for text in row)])
    left = 10 + 7 * max((len(label(name)) for each in maps for name in each.rows), default=0) + 16 * bool(row_axis)
    titles = [textwrap.wrap(each.title, TITLE_WIDTH, break_on_hyphens=False) for each in maps]
    lines = max(map(len, titles), default=0)
    above = 10 + 14 * lines + 5.6 * max((len(label(name)) for each in maps for name in each.columns), default=0)
    below = 4 + 16 * bool(column_axis)
    wide = max((left + cell * len(each.columns) + 22 for each in maps), default=0)
    wide = max([wide, *(8 + 6.3 * len(line) for title in titles for line in title)])
    high = max((above + CELL * len(each.rows) + below for each in maps), default=0)
    across = max(1, min(across, len(maps), int(style.WIDTH * PIXELS_PER_INCH // max(wide, 1))))
    size = wide * across, high * -(-len(maps) // across)
    with style.drawing():
        figure = Figure(figsize=(size[0] / PIXELS_PER_INCH, size[1] / PIXELS_PER_INCH))
        for number, each in enumerate(maps):
            x, y = (number % across) * wide, (number // across) * high
            box = x + left, size[1] - y - above - CELL * len(each.rows), cell * len(each.columns), CELL * len(each.rows)
            axes = figure.add_axes((box[0] / size[0], box[1] / size[1], box[2] / size[0], box[3] / size[1]))
            _draw(axes, each, full)
            for line, text in enumerate(titles[number]):
                height = 1 - (y + 13 + 14 * line) / size[1]
                figure.text((x + 4) / size[0], height, text, fontsize=8.3, fontweight="bold", color=style.INK)
            if number == 0:
                axes.set_ylabel(row_axis, color=style.MUTED)
                axes.set_xlabel(column_axis, color=style.MUTED)
    return figure


def coloured(values: NDArray[np.floating[Any]], limit: float) -> NDArray[np.float64]:
    """Return ``values`` as colours ``[row, column, red green blue alpha]``; alpha is the size of a value."""
    plus, minus, hidden = (to_rgb(colour) for colour in (style.PALETTE[0], style.PALETTE[1], style.GRID))
    colours = np.empty((*values.shape, 4))
    colours[..., :3] = np.where((values < 0)[..., None], minus, plus)
    colours[..., 3] = np.clip(np.abs(values) / limit, 0, 1)
    colours[np.isnan(values)] = (*hidden, 1.0)
    return colours


def label(token: str) -> str:
    """Return a label on one line, cut where it is too long."""
    name = " ".join(token.split())
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def _draw(axes: Any, each: HeatMap, limit: float) -> None:
    values = np.asarray(each.values, dtype=np.float64)
    rows, columns = values.shape
    axes.imshow(coloured(values, limit), interpolation="none", aspect="auto", extent=(0, columns, rows, 0))
    axes.grid(visible=False)
    axes.tick_params(length=0, labelsize=7.9, labelcolor=style.INK, top=False, labeltop=True, labelbottom=False, pad=3)
    axes.set_yticks([row + 0.5 for row in range(rows)], [label(name) for name in each.rows])
    axes.set_xticks(
        [column + 0.62 for column in range(columns)],
        [label(name) for name in each.columns],
        rotation=55,
        ha="left",
        va="bottom",
        rotation_mode="anchor",
    )
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.5)
        spine.set_color(style.MUTED)
    for row, texts in enumerate(each.texts or ()):
        for column, text in enumerate(texts):
            dark = abs(values[row, column]) > 0.6 * limit
            colour = style.PAPER if dark else style.INK
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7, color=colour)
