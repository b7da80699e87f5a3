"""Maps of attention heads with labels as raster images, for hundreds of maps; matplotlib needs 150 times as long."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from headtohead.figures.heat_map import ColourRange, cell_colours, label
from headtohead.figures.style import INK, MUTED, PAPER

CELL = 13
"""Width and height of a cell in pixels, beside which a label fits."""
GAP = 10


def tiles(
    maps: NDArray[Any], rows: Sequence[str], columns: Sequence[str], *, cell: int = CELL
) -> list[Image.Image]:
    """Draw the maps of heads, a tile each, layer by layer.

    Args:
        maps: Weights ``[layer, head, row, column]``; NaN cells are grey. Full colour is 1, or the largest absolute
            weight if that is larger.
        rows: Label of each row, on the left.
        columns: Label of each column, below.
        cell: Width and height of a cell in pixels; tiles with cells below ``CELL`` have neither labels nor titles.
    """
    layers, heads, num_rows, num_columns = maps.shape
    limit = max(1.0, float(np.abs(np.nan_to_num(maps)).max(initial=0.0)))
    colours = cell_colours(maps, ColourRange(-limit, limit))
    names = []
    pictures = []
    for layer in range(layers):
        for head in range(heads):
            names.append(f"layer {layer}, head {head}")
            picture = Image.fromarray(colours[layer, head])
            size = (num_columns * cell, num_rows * cell)
            pictures.append(picture.resize(size, Image.Resampling.NEAREST))
    if cell < CELL:
        return [_bare_tile(picture) for picture in pictures]
    row_labels = _labels(tuple(rows))
    column_labels = _labels(tuple(columns)).rotate(90, expand=True)
    title_width = round(_font().getlength(names[-1]))
    drawn = []
    for name, picture in zip(names, pictures, strict=True):
        tile = _labelled_tile(name, title_width, picture, row_labels, column_labels)
        drawn.append(tile)
    return drawn


def _bare_tile(picture: Image.Image) -> Image.Image:
    """Return a map with a gap on its right and below."""
    tile = Image.new("RGB", (picture.width + GAP, picture.height + GAP), PAPER)
    tile.paste(picture, (0, 0))
    return tile


def _labelled_tile(
    title: str,
    title_width: int,
    picture: Image.Image,
    row_labels: Image.Image,
    column_labels: Image.Image,
) -> Image.Image:
    """Return a map with its title above, the labels of its rows on the left and those of its columns below."""
    left = row_labels.width
    top = CELL + 4
    right = left + picture.width
    bottom = top + picture.height
    width = max(right, title_width)
    height = bottom + column_labels.height
    tile = Image.new("RGB", (width + GAP, height + GAP), PAPER)
    tile.paste(picture, (left, top))
    draw = ImageDraw.Draw(tile)
    draw.text((0, 0), title, INK, _font())
    tile.paste(row_labels, (0, top))
    tile.paste(column_labels, (left, bottom + 1))
    draw.rectangle((left - 1, top - 1, right, bottom), outline=MUTED)
    return tile


def grid(drawn: Sequence[Image.Image], across: int) -> Image.Image:
    """Return tiles of one size in reading order, ``across`` in a row."""
    width, height = drawn[0].size
    down = math.ceil(len(drawn) / across)
    image = Image.new("RGB", (width * across, height * down), PAPER)
    for index, tile in enumerate(drawn):
        row, column = divmod(index, across)
        image.paste(tile, (column * width, row * height))
    return image


@functools.lru_cache(maxsize=64)
def _labels(names: tuple[str, ...]) -> Image.Image:
    """Return the labels below each other, right-aligned; all runs of a study have the same."""
    font = _font()
    texts = [label(name) for name in names]
    longest = max((font.getlength(text) for text in texts), default=0)
    width = round(longest) + 4
    image = Image.new("RGB", (width, CELL * len(texts)), PAPER)
    draw = ImageDraw.Draw(image)
    for index, text in enumerate(texts):
        middle = CELL * (index + 0.5)
        draw.text((width - 3, middle), text, INK, font, anchor="rm")
    return image


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    file = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(str(file), CELL - 3)  # Pillow 10 accepts no Path
