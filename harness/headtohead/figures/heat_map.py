"""Heat maps: matrices as coloured cells, blue where they are positive and orange where they are negative."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from headtohead.figures import style
from headtohead.figures.style import INK, MUTED, PALETTE, PAPER

HIDDEN = "#dfe2e6"
"""Colour of masked cells."""

BLUE = to_rgba(PALETTE[0])
ORANGE = to_rgba(PALETTE[1])
_NO_BLUE = to_rgba(PALETTE[0], 0)
_NO_ORANGE = to_rgba(PALETTE[1], 0)


def _colour_map(name: str, colours: Sequence[Any], levels: int = 256) -> Colormap:
    """Return a colour map in which NaN has the colour of masked cells."""
    colour_map = LinearSegmentedColormap.from_list(name, colours, N=levels)
    return colour_map.with_extremes(bad=HIDDEN)


# Transparent at 0, so that figures suit light and dark pages.
POSITIVE = _colour_map("positive", [_NO_BLUE, BLUE])
NEGATIVE = _colour_map("negative", [ORANGE, _NO_ORANGE])
SIGNED = _colour_map(
    "signed", [(0, ORANGE), (0.5, _NO_ORANGE), (0.5, _NO_BLUE), (1, BLUE)], levels=257
)

MAX_LABEL = 14
TITLE_CHARACTERS = 32
"""Characters in a line of a title."""
PIXELS_PER_INCH = 96

# Sizes of `heat_map_figure` in pixels.
CELL_PIXELS = 17
TITLE_LINE = 14
TITLE_CHARACTER = 6.3
TITLE_INDENT = 4
FIRST_TITLE_LINE = 13
"""Distance of the first line of a title from the top of its map."""
RIGHT_MARGIN = 8
ROW_CHARACTER = 7
COLUMN_CHARACTER = 6.6


@dataclass(frozen=True)
class ColourRange:
    """The values at both ends of a colour scale; 0 is transparent.

    A range with negative and positive values is symmetric, so that equal sizes are equally dark.
    """

    low: float
    high: float

    @property
    def colours(self) -> Colormap:
        """The colour map from ``low`` to ``high``."""
        if self.low == 0:
            return POSITIVE
        if self.high > 0:
            return SIGNED
        return NEGATIVE


def heat_map(
    axes: Axes, matrix: ArrayLike, rows: Sequence[str], columns: Sequence[str], scale: ColourRange
) -> None:
    """Draw ``matrix`` ``[row, column]`` with its row and column labels.

    Args:
        axes: Where to draw; its grid and frame are replaced, and the cells fill it.
        matrix: Values; NaN cells are masked and drawn in grey.
        rows: Label of each row, or nothing for no labels. Of more than 10 numbers every fifth is shown.
        columns: Label of each column; labels longer than two letters are rotated.
        scale: Range of the colours.
    """
    values: NDArray[Any] = np.asarray(matrix, dtype=float)
    axes.imshow(
        np.ma.masked_invalid(values),
        cmap=scale.colours,
        vmin=scale.low,
        vmax=scale.high,
        aspect="auto",
        interpolation="none",
    )
    axes.grid(visible=False)
    axes.spines[["top", "right"]].set_visible(True)
    axes.tick_params(length=0)
    x, y = _lines_between_cells(*values.shape)
    axes.plot(x, y, color=PAPER, linewidth=0.9, scalex=False, scaley=False)
    rotation = 90 if _is_rotated(columns) else 0
    axes.set_xticks(*_ticks(columns), rotation=rotation)
    axes.set_yticks(*_ticks(rows))
    for spine in axes.spines.values():
        spine.set_edgecolor(MUTED)


def _lines_between_cells(height: int, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return x and y of all lines between cells as one path, with NaN between the lines."""
    columns_at = np.repeat(np.arange(1, width) - 0.5, 3)
    rows_at = np.repeat(np.arange(1, height) - 0.5, 3)
    down = np.tile([-0.5, height - 0.5, np.nan], width - 1)
    right = np.tile([-0.5, width - 0.5, np.nan], height - 1)
    return np.concatenate([columns_at, right]), np.concatenate([down, rows_at])


def cell_colours(matrix: ArrayLike, colour_range: ColourRange) -> NDArray[np.uint8]:
    """Return the colours of the cells of `heat_map` on white paper, ``[..., red green blue]``.

    For sheets of hundreds of maps, which matplotlib would draw 150 times as slowly as NumPy.
    """
    values: NDArray[Any] = np.asarray(matrix, dtype=float)
    position = (values - colour_range.low) / (colour_range.high - colour_range.low)
    colours = colour_range.colours(np.ma.masked_invalid(position))
    alpha = colours[..., 3:]
    on_paper = colours[..., :3] * alpha + 1 - alpha
    return np.asarray(np.round(255 * on_paper), dtype=np.uint8)


@dataclass(frozen=True)
class HeatMap:
    """A matrix ``[row, column]`` with its labels; NaN marks a masked cell."""

    values: NDArray[np.floating[Any]] = field(repr=False)
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""

    @property
    def title_lines(self) -> list[str]:
        """The title in lines of at most ``TITLE_CHARACTERS``."""
        return textwrap.wrap(self.title, TITLE_CHARACTERS, break_on_hyphens=False)

    @property
    def width(self) -> int:
        """Width of the cells in pixels."""
        return CELL_PIXELS * len(self.columns)

    @property
    def height(self) -> int:
        """Height of the cells in pixels."""
        return CELL_PIXELS * len(self.rows)


@dataclass(frozen=True)
class Margins:
    """The space around the cells of every map of a figure, in pixels."""

    left: float
    above: float
    below: float

    @classmethod
    def of(cls, maps: Sequence[HeatMap]) -> Margins:
        """Return the margins in which the longest labels and titles fit."""
        longest_row = 0
        longest_column = 0
        title_lines = 0
        for heat in maps:
            longest_row = max(longest_row, _longest(heat.rows))
            title_lines = max(title_lines, len(heat.title_lines))
            if _is_rotated(heat.columns):
                longest_column = max(longest_column, _longest(heat.columns))
        return cls(
            left=10.0 + ROW_CHARACTER * longest_row,
            above=10 + TITLE_LINE * title_lines,
            below=14 + COLUMN_CHARACTER * longest_column,
        )


def heat_map_figure(maps: Sequence[HeatMap], *, across: int = 3, limit: float = 1.0) -> Figure:
    """Draw heat maps of weights from -limit to limit side by side in reading order.

    A row has at most ``across`` maps, and at most as many as fit on a page.
    """
    margins = Margins.of(maps)
    map_width = 0.0  # all maps have the width and the height of the largest one, in pixels
    map_height = 0.0
    for heat in maps:
        map_width = max(map_width, margins.left + heat.width + RIGHT_MARGIN)
        map_height = max(map_height, margins.above + heat.height + margins.below)
        for line in heat.title_lines:
            map_width = max(map_width, TITLE_CHARACTER * len(line) + 2 * TITLE_INDENT)
    page_width = style.WIDTH * PIXELS_PER_INCH
    fitting = int(page_width // max(map_width, 1))
    num_columns = max(1, min(across, len(maps), fitting))
    num_rows = math.ceil(len(maps) / num_columns)
    width = map_width * num_columns
    height = map_height * num_rows
    with style.drawing():
        figure = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH))
        for index, heat in enumerate(maps):
            row, column = divmod(index, num_columns)
            # Pixels from the upper left corner; matplotlib takes fractions from the lower left one.
            map_left = column * map_width
            map_top = row * map_height
            cells_left = map_left + margins.left
            cells_bottom = height - map_top - margins.above - heat.height
            bounds = (
                cells_left / width,
                cells_bottom / height,
                heat.width / width,
                heat.height / height,
            )
            axes = figure.add_axes(bounds)
            heat_map(axes, heat.values, heat.rows, heat.columns, ColourRange(-limit, limit))
            axes.tick_params(labelsize=7.9, pad=3)
            for number, line in enumerate(heat.title_lines):
                x = (map_left + TITLE_INDENT) / width
                y = 1 - (map_top + FIRST_TITLE_LINE + TITLE_LINE * number) / height
                figure.text(x, y, line, fontsize=8.3, fontweight="bold", color=INK)
    return figure


def label(token: str) -> str:
    """Return a token as a label: on one line, and shortened to ``MAX_LABEL`` characters."""
    name = " ".join(token.split())
    if len(name) <= MAX_LABEL:
        return name
    return f"{name[: MAX_LABEL - 1]}…"


def _longest(names: Sequence[str]) -> int:
    """Return the number of characters of the longest label."""
    return max((len(label(name)) for name in names), default=0)


def _ticks(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return the positions and the labels of ticks; of more than 10 numbers every fifth."""
    step = 1
    if len(names) > 10 and all(name.isdigit() for name in names):
        step = 5
    return list(range(0, len(names), step)), [label(name) for name in names[::step]]


def _is_rotated(columns: Sequence[str]) -> bool:
    """Return whether the labels of columns are rotated: one is longer than two letters."""
    return any(len(name) > 2 for name in columns)
