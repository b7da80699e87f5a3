"""Heat maps: matrices with a label at every row and column, side by side on one scale."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from headtohead.figures import style

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
