"""Sheets of attention maps as PNG images, composed by NumPy and Pillow, since a study has hundreds of them.

A contact sheet shows all heads of a role (a row per layer, a column per head) without labels, for
MLflow's image grid. A labelled sheet adds tokens and head numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from headtohead.escaping import single_line
from headtohead.figures.heat_map import ColourRange, cell_colours, label

SHEET_PIXELS = 256
LABELLED_CELL = 14
GAP = 2
TEXT_HEIGHT = 11
WHITE = 255

Maps = NDArray[np.float32]
Pixels = NDArray[np.uint8]
"""``[row, column, red green blue]``"""


def contact_sheet(maps: Maps, *, signed: bool) -> Image.Image:
    """Draw ``maps`` [layer, head, query, key], enlarged without smoothing to about 256 pixels."""
    layers, heads, queries, keys = maps.shape
    cell = min((SHEET_PIXELS - GAP * heads) // (heads * keys), (SHEET_PIXELS - GAP * layers) // (layers * queries))
    return Image.fromarray(_tiles(maps, signed, max(1, cell), GAP))


def labelled_sheet(maps: Maps, queries: Sequence[str], keys: Sequence[str], *, title: str, signed: bool) -> Image.Image:
    """Draw the same sheet with query tokens on the left, key tokens below, and numbered heads."""
    tiles = _tiles(maps, signed, LABELLED_CELL, GAP * 3)
    heading = _text(title)
    left = max(_text(label(token)).shape[1] for token in queries) + 8
    below = max(_text(label(token)).shape[1] for token in keys) + 8
    above = 2 * TEXT_HEIGHT + 12
    width = left + max(tiles.shape[1], heading.shape[1]) + 4
    sheet = np.full((above + tiles.shape[0] + below, width, 3), WHITE, np.uint8)
    _paste(sheet, tiles, left, above)
    _paste(sheet, heading, left, 2)
    _write_labels(sheet, maps.shape, queries, keys, left, above)
    return Image.fromarray(sheet)


def _write_labels(
    sheet: Pixels, shape: tuple[int, ...], queries: Sequence[str], keys: Sequence[str], left: int, above: int
) -> None:
    layers, heads = shape[:2]
    tile_height, tile_width = len(queries) * LABELLED_CELL + GAP * 3, len(keys) * LABELLED_CELL + GAP * 3
    for head in range(heads):
        _paste(sheet, _text(f"head {head}"), left + head * tile_width, above - TEXT_HEIGHT - 5)
        for index, token in enumerate(keys):
            x = left + head * tile_width + index * LABELLED_CELL
            _paste(sheet, np.rot90(_text(label(token)), k=-1), x, above + layers * tile_height)
    for layer in range(layers):
        for index, token in enumerate(queries):
            text = _text(label(token))
            _paste(sheet, text, left - text.shape[1] - 4, above + layer * tile_height + index * LABELLED_CELL)


def _paste(sheet: Pixels, part: Pixels, left: int, top: int) -> None:
    target = sheet[top : top + part.shape[0], left : left + part.shape[1]]
    target[...] = part[: target.shape[0], : target.shape[1]]


def _tiles(maps: Maps, signed: bool, cell: int, gap: int) -> Pixels:
    """Return the maps as enlarged tiles, a row per layer and a column per head, with white gaps."""
    largest = max(float(np.abs(np.nan_to_num(maps)).max(initial=0.0)), 1e-9)
    colours = cell_colours(maps, ColourRange(-largest, largest) if signed else ColourRange(0.0, 1.0))
    layers, heads, queries, keys = maps.shape
    tiles = np.full((layers, heads, queries * cell + gap, keys * cell + gap, 3), WHITE, np.uint8)
    tiles[:, :, : queries * cell, : keys * cell] = colours.repeat(cell, axis=2).repeat(cell, axis=3)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(layers * tiles.shape[2], heads * tiles.shape[3], 3)


@functools.lru_cache(maxsize=4096)
def _text(text: str) -> Pixels:
    text = single_line(text)
    font = ImageFont.load_default(size=TEXT_HEIGHT)
    image = Image.new("RGB", (max(1, round(font.getlength(text)) + 1), TEXT_HEIGHT + 3), "white")
    ImageDraw.Draw(image).text((0, 0), text, fill="black", font=font)
    return np.asarray(image)
