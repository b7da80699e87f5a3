"""The pictures of the catalogue: numbers in, a PNG file out that also stores the numbers."""

from __future__ import annotations

import io
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from headtohead.figures.heat_map import BLUE, HIDDEN, ColourRange, heat_map
from headtohead.figures.style import MUTED, PALETTE, PAPER, drawing

WIDTH = 3.2
"""Width in inches: two pictures fit side by side on a desktop screen."""
DOTS_PER_INCH = 180
COLOURS = 192
"""Size of the palette; a PNG file with a palette has half the bytes."""
DESCRIPTION = "Description"
"""Name of the text chunk of a PNG file with the numbers."""

Values = Sequence[Sequence[float | None]]


def covering(*matrices: ArrayLike, probabilities: bool = False) -> ColourRange:
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
        return ColourRange(-largest, largest if high > 1e-9 * largest else 0.0)
    return ColourRange(0.0, 1.0 if high == 0 or (probabilities and high > 0.999) else high)


@dataclass(frozen=True)
class HeatMaps:
    """One or more heat maps under one title with the same rows, columns and colours.

    ``maps`` are pairs of a name and rows of numbers; None is a masked cell. ``legend`` names the
    colours of 1 and of masked cells and replaces the colour bar.
    """

    title: str
    maps: Sequence[tuple[str, Values]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str
    column_axis: str
    unit: str
    colour_range: ColourRange | None = None
    legend: tuple[str, str] | None = None

    def draw(self) -> Figure:
        """Return the picture."""
        arrays = [np.array(values, dtype=float) for _, values in self.maps]
        chosen = self.colour_range or covering(*arrays)
        across = 1 if len(arrays) == 1 else 2
        down = math.ceil(len(arrays) / across)
        small = across == 2 or len(self.columns) > 12
        letter = 0.058 if small else 0.07
        left = 0.3 + letter * max(map(len, self.rows))
        cell = min(0.25, (WIDTH - left - 0.1 - 0.1 * (across - 1)) / across / len(self.columns))
        wide, high = cell * len(self.columns), cell * len(self.rows)
        names = max(map(len, self.columns))
        maps_end = 0.3 + down * (high + 0.2)
        bottom = maps_end + 0.3 + (letter * names if names > 2 else 0.13)
        height = bottom + (0.3 if self.legend else 0.5)
        figure = _figure(height, self.title)
        for index, ((name, _), array) in enumerate(zip(self.maps, arrays, strict=True)):
            row, column = divmod(index, across)
            axes = _axes(figure, left + column * (wide + 0.1), 0.5 + row * (high + 0.2), wide, high)
            labels = self.rows if column == 0 else (), self.columns if row == down - 1 else ()
            heat_map(axes, array, *labels, chosen)
            axes.tick_params(labelsize=6.5 if small else 8, pad=1.5)
            axes.set_title(name, fontsize=8, fontweight="normal", color=MUTED, pad=2)
        middle = (0.5 + maps_end) / 2
        figure.text(
            0.03,
            1 - middle / height,
            self.row_axis,
            fontsize=8,
            color=MUTED,
            rotation=90,
            va="center",
        )
        figure.text(
            left / WIDTH, 1 - (bottom - 0.02) / height, self.column_axis, fontsize=8, color=MUTED
        )
        if self.legend is not None:
            attended, masked = self.legend
            patches = [Patch(color=BLUE, label=attended), Patch(color=HIDDEN, label=masked)]
            figure.legend(
                handles=patches,
                loc="lower left",
                bbox_to_anchor=(left / WIDTH, 0),
                ncols=2,
                fontsize=8,
            )
            return figure
        axes = _axes(figure, left, bottom + 0.1, 1.2, 0.08)
        axes.imshow(
            np.linspace(chosen.low, chosen.high, 64)[None], cmap=chosen.colours, aspect="auto"
        )
        ticks = sorted({chosen.low, 0.0, chosen.high})
        positions = [63 * (tick - chosen.low) / (chosen.high - chosen.low) for tick in ticks]
        axes.set_xticks(positions, list(map(number, ticks)), fontsize=7.5)
        axes.tick_params(length=0, pad=2)
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.text(
            1.06, 0.5, self.unit, transform=axes.transAxes, fontsize=8, color=MUTED, va="center"
        )
        return figure


@dataclass(frozen=True)
class Curves:
    """Curves over whole numbers ``x``; None leaves a gap."""

    title: str
    x: Sequence[int]
    curves: Sequence[tuple[str, Sequence[float | None]]]
    axis: str
    unit: str

    def draw(self) -> Figure:
        """Return the picture."""
        lines = math.ceil(len(self.curves) / 4) if len(self.curves) > 1 else 0
        figure = _figure(2.4 + 0.16 * lines, self.title)
        axes = _axes(figure, 0.6, 0.4, WIDTH - 0.75, 1.5)
        for (name, curve), colour in zip(self.curves, PALETTE, strict=False):
            axes.plot(self.x, np.array(curve, dtype=float), color=colour, linewidth=1.5, label=name)
        values = [value for _, curve in self.curves for value in curve if value is not None]
        if max(values, default=0.0) - min(values, default=0.0) < 1e-9:
            axes.set_ylim(min([*values, 0.0]) - 1, max([*values, 0.0]) + 1)
        axes.axhline(0, color=MUTED, linewidth=0.8, zorder=0)
        axes.set_xlabel(self.axis, fontsize=8, color=MUTED)
        axes.set_ylabel(self.unit, fontsize=8, color=MUTED)
        axes.tick_params(labelsize=7.5)
        axes.yaxis.set_label_coords(
            0.06, 1 - 1.15 / figure.get_figheight(), transform=figure.transFigure
        )
        if lines:
            figure.legend(
                loc="lower center",
                ncols=4,
                fontsize=7,
                handlelength=1,
                columnspacing=1,
                borderpad=0.2,
            )
        return figure


@dataclass(frozen=True)
class HeadBoxes:
    """The geometry of one attention, to scale: a box for each head, as wide as the head.

    ``rows`` are a name and, for each head, its width and the number of its key/value group.
    """

    title: str
    rows: Sequence[tuple[str, Sequence[tuple[float, int]]]]
    note: str
    model_width: float

    def draw(self) -> Figure:
        """Return the picture."""
        note = textwrap.wrap(self.note, 56)
        high = 0.25 * (len(self.rows) + 1)
        figure = _figure(0.55 + high + 0.14 * len(note), self.title)
        axes = _axes(figure, 0.65, 0.35, WIDTH - 0.75, high)
        for row, (_, heads) in enumerate(self.rows):
            left = 0.0
            for width, group in heads:
                colour = PALETTE[group % len(PALETTE)]
                axes.barh(
                    row, width, left=left, height=0.75, color=colour, edgecolor=PAPER, linewidth=1
                )
                left += width
            if not heads:
                axes.text(0, row, "none", va="center", fontsize=8, color=MUTED)
        axes.barh(len(self.rows), self.model_width, height=0.12, color=MUTED)
        axes.set_yticks(
            range(len(self.rows) + 1), [*(name for name, _ in self.rows), "d"], fontsize=8
        )
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks([])
        figure.text(0.03, 0.02, "\n".join(note), fontsize=7.5, color=MUTED, va="bottom")
        return figure


@dataclass(frozen=True)
class PictureNote:
    """A sentence in place of a picture."""

    title: str
    text: str


Picture = HeatMaps | Curves | HeadBoxes


def png(picture: Picture) -> bytes:
    """Return a picture as a PNG file that stores the numbers."""
    with drawing():
        buffer = io.BytesIO()
        picture.draw().savefig(buffer, format="png", dpi=DOTS_PER_INCH, facecolor=PAPER)
    description = PngInfo()
    description.add_text(
        DESCRIPTION, json.dumps(numbers_of(picture), separators=(",", ":")), zip=True
    )
    out = io.BytesIO()
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(
        out, "PNG", optimize=True, pnginfo=description
    )
    return out.getvalue()


def numbers_of(picture: Picture) -> Any:
    """Return the content of a picture as JSON values, numbers with three digits."""
    return _rounded({"kind": type(picture).__name__, **asdict(picture)})


def stored_numbers(path: Path) -> Any:
    """Return the stored result of `numbers_of` for the picture in a PNG file, or None."""
    with Image.open(path) as image:
        text = image.info.get(DESCRIPTION)
    return None if text is None else json.loads(text)


def same_numbers(stored: Any, computed: Any) -> bool:
    """Return whether two pictures have the same content, up to rounding on another machine."""
    if isinstance(stored, float | int) and isinstance(computed, float | int):
        return abs(stored - computed) <= 0.02 * max(1.0, abs(stored), abs(computed))
    if isinstance(stored, dict) and isinstance(computed, dict):
        return stored.keys() == computed.keys() and all(
            same_numbers(stored[key], computed[key]) for key in computed
        )
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(same_numbers, stored, computed))
    return bool(stored == computed)


def number(value: float) -> str:
    """Return a number with two significant digits and a true minus sign."""
    shown = f"{value:.2g}"
    if "e" in shown:
        shown = f"{value:.0f}" if abs(value) >= 1 else f"{value:.1e}"
    return shown.replace("-", "−")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _figure(height: float, title: str) -> Figure:
    figure = Figure((WIDTH, height))
    size = min(9.5, 9.5 * 44 / max(len(title), 1))
    figure.text(0.03, 1 - 0.08 / height, title, fontsize=size, fontweight="bold", va="top")
    return figure


def _axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a position in inches from the upper left corner; matplotlib's layout engines take seconds."""
    full = figure.get_figheight()
    return figure.add_axes((left / WIDTH, 1 - (top + height) / full, width / WIDTH, height / full))
