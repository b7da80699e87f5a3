"""Heat maps: a matrix as coloured cells, blue where it is positive and orange where it is negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray

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
