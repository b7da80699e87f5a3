"""Heat maps: matrices as coloured cells, blue where they are positive and orange where they are negative."""

from __future__ import annotations

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

BLUE, ORANGE = to_rgba(PALETTE[0]), to_rgba(PALETTE[1])
_NO_BLUE, _NO_ORANGE = to_rgba(PALETTE[0], 0), to_rgba(PALETTE[1], 0)
# Transparent at 0, so that figures suit light and dark pages.
POSITIVE = LinearSegmentedColormap.from_list("positive", [_NO_BLUE, BLUE]).with_extremes(bad=HIDDEN)
NEGATIVE = LinearSegmentedColormap.from_list("negative", [ORANGE, _NO_ORANGE]).with_extremes(
    bad=HIDDEN
)
SIGNED = LinearSegmentedColormap.from_list(
    "signed", [(0, ORANGE), (0.5, _NO_ORANGE), (0.5, _NO_BLUE), (1, BLUE)], N=257
).with_extremes(bad=HIDDEN)

MAX_LABEL = 14
TITLE_CHARACTERS = 32
"""Characters in a line of a title."""
PIXELS_PER_INCH = 96
CELL_PIXELS = 17
"""Width and height of a cell of `heat_map_figure`."""


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
        return SIGNED if self.high > 0 else NEGATIVE


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
    height, width = values.shape
    # All lines between cells are one path, with NaN between them.
    columns_at, rows_at = (np.repeat(np.arange(1, size) - 0.5, 3) for size in (width, height))
    down, right = (
        np.tile([-0.5, size - 0.5, np.nan], other - 1)
        for size, other in ((height, width), (width, height))
    )
    x, y = np.concatenate([columns_at, right]), np.concatenate([down, rows_at])
    axes.plot(x, y, color=PAPER, linewidth=0.9, scalex=False, scaley=False)
    axes.set_xticks(*_ticks(columns), rotation=90 if _is_rotated(columns) else 0)
    axes.set_yticks(*_ticks(rows))
    for spine in axes.spines.values():
        spine.set_edgecolor(MUTED)


def cell_colours(matrix: ArrayLike, colour_range: ColourRange) -> NDArray[np.uint8]:
    """Return the colours of the cells of `heat_map` on white paper, ``[..., red green blue]``.

    For sheets of hundreds of maps, which matplotlib would draw 150 times as slowly as NumPy.
    """
    values: NDArray[Any] = np.asarray(matrix, dtype=float)
    position = (values - colour_range.low) / (colour_range.high - colour_range.low)
    colours = colour_range.colours(np.ma.masked_invalid(position))
    alpha = colours[..., 3:]
    return np.asarray(np.round(255 * (colours[..., :3] * alpha + 1 - alpha)), dtype=np.uint8)


@dataclass(frozen=True)
class HeatMap:
    """A matrix ``[row, column]`` with its labels; NaN marks a masked cell."""

    values: NDArray[np.floating[Any]] = field(repr=False)
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""


def heat_map_figure(maps: Sequence[HeatMap], *, across: int = 3) -> Figure:
    """Draw heat maps of weights from -1 to 1 side by side in reading order, at most ``across`` in a row."""
    titles = [textwrap.wrap(heat.title, TITLE_CHARACTERS, break_on_hyphens=False) for heat in maps]
    left = 10.0 + 7 * max((len(label(name)) for heat in maps for name in heat.rows), default=0)
    above = 10 + 14 * max(map(len, titles), default=0)
    rotated = [
        len(label(name)) for heat in maps for name in heat.columns if _is_rotated(heat.columns)
    ]
    below = 14 + 6.6 * max(rotated, default=0)
    wide = max((left + CELL_PIXELS * len(heat.columns) + 8 for heat in maps), default=0)
    wide = max([wide, *(8 + 6.3 * len(line) for title in titles for line in title)])
    high = max((above + CELL_PIXELS * len(heat.rows) + below for heat in maps), default=0)
    across = max(1, min(across, len(maps), int(style.WIDTH * PIXELS_PER_INCH // max(wide, 1))))
    width, height = wide * across, high * -(-len(maps) // across)
    with style.drawing():
        figure = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH))
        for index, (heat, title) in enumerate(zip(maps, titles, strict=True)):
            x, y = (index % across) * wide, (index // across) * high
            map_width, map_height = CELL_PIXELS * len(heat.columns), CELL_PIXELS * len(heat.rows)
            bottom = height - y - above - map_height
            axes = figure.add_axes(
                ((x + left) / width, bottom / height, map_width / width, map_height / height)
            )
            heat_map(axes, heat.values, heat.rows, heat.columns, ColourRange(-1.0, 1.0))
            axes.tick_params(labelsize=7.9, pad=3)
            for line, text in enumerate(title):
                top = 1 - (y + 13 + 14 * line) / height
                figure.text((x + 4) / width, top, text, fontsize=8.3, fontweight="bold", color=INK)
    return figure


def label(token: str) -> str:
    """Return a token as a label: on one line, and shortened to ``MAX_LABEL`` characters."""
    name = " ".join(token.split())
    return name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…"


def _ticks(names: Sequence[str]) -> tuple[list[int], list[str]]:
    step = 5 if len(names) > 10 and all(name.isdigit() for name in names) else 1
    return list(range(0, len(names), step)), [label(name) for name in names[::step]]


def _is_rotated(columns: Sequence[str]) -> bool:
    return max(map(len, columns), default=0) > 2
