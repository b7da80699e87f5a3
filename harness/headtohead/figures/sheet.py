"""Maps of attention heads with labels as raster images, for hundreds of maps; matplotlib needs 150 times as long."""

from __future__ import annotations

import functools
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
    layers, heads, height, width = maps.shape
    names = [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]
    width, height, x, y, left, below = width * cell, height * cell, 0, 0, None, None
    right, bottom = width, height
    if cell >= CELL:
        left, below = _labels(tuple(rows)), _labels(tuple(columns)).rotate(90, expand=True)
        x, y = left.width, CELL + 4
        right, bottom = (
            max(x + width, round(_font().getlength(names[-1]))),
            y + height + below.height,
        )
    limit = max(1.0, float(np.abs(np.nan_to_num(maps)).max(initial=0.0)))
    drawn = []
    colours = cell_colours(maps, ColourRange(-limit, limit)).reshape(
        layers * heads, *maps.shape[2:], 3
    )
    for name, own in zip(names, colours, strict=True):
        tile = Image.new("RGB", (right + GAP, bottom + GAP), PAPER)
        tile.paste(Image.fromarray(own).resize((width, height), Image.Resampling.NEAREST), (x, y))
        if left and below:
            draw = ImageDraw.Draw(tile)
            draw.text((0, 0), name, INK, _font())
            tile.paste(left, (0, y))
            tile.paste(below, (x, y + height + 1))
            draw.rectangle((x - 1, y - 1, x + width, y + height), outline=MUTED)
        drawn.append(tile)
    return drawn


def grid(drawn: Sequence[Image.Image], across: int) -> Image.Image:
    """Return tiles of one size in reading order, ``across`` in a row."""
    width, height = drawn[0].size
    image = Image.new("RGB", (width * across, height * -(-len(drawn) // across)), PAPER)
    for index, tile in enumerate(drawn):
        image.paste(tile, (index % across * width, index // across * height))
    return image


@functools.lru_cache(maxsize=64)
def _labels(names: tuple[str, ...]) -> Image.Image:
    """Return the labels below each other, right-aligned; all runs of a study have the same."""
    texts = [label(name) for name in names]
    width = round(max(map(_font().getlength, texts), default=0)) + 4
    image = Image.new("RGB", (width, CELL * len(texts)), PAPER)
    draw = ImageDraw.Draw(image)
    for index, text in enumerate(texts):
        draw.text((width - 3, CELL * (index + 0.5)), text, INK, _font(), anchor="rm")
    return image


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"), CELL - 3
    )
