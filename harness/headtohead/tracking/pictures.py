"""Attention maps as pictures, drawn with NumPy and Pillow: a study has hundreds of them.

A contact sheet shows all heads of a role (a row per layer, a column per head) without words, for
MLflow's image grid; a labelled sheet is the same with the tokens written out, for reading. Both are
palette images, which PNG writes three times as fast: the lower indices are the colours of weights,
the upper ones the greys of text, from black to white.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SHEET_PIXELS = 256
LABELLED_CELL = 14
GAP = 2
TEXT_HEIGHT = 11
LONGEST_LABEL = 14
COLOURS = 200
GREYS = 256 - COLOURS
WHITE = 255

Maps = NDArray[np.float32]
Pixels = NDArray[np.uint8]

# Light to dark, so that no weight is white paper; negative weights orange, as in the report.
_SEQUENTIAL = ((247, 251, 255), (158, 202, 225), (66, 146, 198), (8, 81, 156), (8, 29, 70))
_DIVERGING = ((166, 54, 3), (253, 174, 107), (247, 247, 247), (107, 174, 214), (8, 81, 156))


def contact_sheet(maps: Maps, *, signed: bool) -> Image.Image:
    """Draw ``maps`` [layer, head, query, key], enlarged without smoothing to about 256 pixels."""
    layers, heads, queries, keys = maps.shape
    room = min((SHEET_PIXELS - GAP * heads) // (heads * keys), (SHEET_PIXELS - GAP * layers) // (layers * queries))
    return _image(_tiled(_levels(maps, signed), max(1, room), GAP), signed)


def labelled_sheet(maps: Maps, queries: Sequence[str], keys: Sequence[str], *, title: str, signed: bool) -> Image.Image:
    """Draw the same sheet with query tokens at the left, key tokens below and heads numbered."""
    tiles = _tiled(_levels(maps, signed), LABELLED_CELL, GAP * 3)
    left = max(_label(word).shape[1] for word in queries) + 8
    below = max(_label(word).shape[1] for word in keys) + 8
    above = 2 * TEXT_HEIGHT + 12
    wide = left + max(tiles.shape[1], _label(title, 200).shape[1]) + 4
    sheet = np.full((above + tiles.shape[0] + below, wide), WHITE, np.uint8)
    _paste(sheet, tiles, left, above)
    _paste(sheet, _label(title, 200), left, 2)
    _write_labels(sheet, maps.shape, queries, keys, left, above)
    return _image(sheet, signed)


def _write_labels(
    sheet: Pixels, shape: tuple[int, ...], queries: Sequence[str], keys: Sequence[str], left: int, above: int
) -> None:
    layers, heads = shape[:2]
    high, wide = len(queries) * LABELLED_CELL + GAP * 3, len(keys) * LABELLED_CELL + GAP * 3
    for head in range(heads):
        _paste(sheet, _label(f"head {head}"), left + head * wide, above - TEXT_HEIGHT - 5)
        for index, word in enumerate(keys):
            place = left + head * wide + index * LABELLED_CELL
            _paste(sheet, np.rot90(_label(word), k=-1), place, above + layers * high)
    for layer in range(layers):
        for index, word in enumerate(queries):
            label = _label(word)
            top = above + layer * high + index * LABELLED_CELL
            _paste(sheet, label, left - label.shape[1] - 4, top)


def _paste(sheet: Pixels, part: Pixels, left: int, top: int) -> None:
    room = sheet[top : top + part.shape[0], left : left + part.shape[1]]
    room[...] = part[: room.shape[0], : room.shape[1]]


def _levels(maps: Maps, signed: bool) -> Pixels:
    """Return palette indices: weights from 0 to 1, or signed ones within their largest size."""
    finite = np.nan_to_num(maps, nan=0.0, posinf=1.0, neginf=-1.0).astype(np.float64)
    if signed:
        finite = (finite / max(float(np.abs(finite).max()), 1e-9) + 1) / 2
    indices: Pixels = np.clip(finite * (COLOURS - 1), 0, COLOURS - 1).astype(np.uint8)
    return indices


def _tiled(levels: Pixels, cell: int, gap: int) -> Pixels:
    """Place [layer, head, query, key] as rows and columns of enlarged tiles."""
    layers, heads, queries, keys = levels.shape
    sheet = np.full((layers, heads, queries * cell + gap, keys * cell + gap), WHITE, np.uint8)
    big = levels.repeat(cell, axis=2).repeat(cell, axis=3)
    sheet[:, :, : queries * cell, : keys * cell] = big
    rows: Pixels = sheet.transpose(0, 2, 1, 3).reshape(layers * (queries * cell + gap), heads * (keys * cell + gap))
    return rows


def _image(indices: Pixels, signed: bool) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(indices))
    image.putpalette(_palette(signed))
    return image


@functools.cache
def _palette(signed: bool) -> bytes:
    anchors = np.array(_DIVERGING if signed else _SEQUENTIAL, dtype=float)
    places = np.linspace(0, COLOURS - 1, len(anchors))
    colours = [np.interp(np.arange(COLOURS), places, channel) for channel in anchors.T]
    greys = np.linspace(0, 255, GREYS)[:, None].repeat(3, axis=1)
    return np.concatenate([np.stack(colours, axis=-1), greys]).astype(np.uint8).tobytes()


@functools.lru_cache(maxsize=4096)
def _label(word: str, longest: int = LONGEST_LABEL) -> Pixels:
    text = word if len(word) <= longest else word[: longest - 1] + "…"
    font = _font()
    width = max(1, round(font.getlength(text)) + 1)
    image = Image.new("L", (width, TEXT_HEIGHT + 3), 255)
    ImageDraw.Draw(image).text((0, 0), text, fill=0, font=font)
    grey = np.asarray(image).astype(np.uint16) * (GREYS - 1) // 255
    indices: Pixels = (grey + COLOURS).astype(np.uint8)
    return indices


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=TEXT_HEIGHT)
