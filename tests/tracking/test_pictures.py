"""Sheets of attention maps: every weight is a square of a single colour, without smoothing."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from headtohead.figures.heat_map import BLUE, HIDDEN, ORANGE, ColourRange, cell_colours
from headtohead.tracking.pictures import _text, contact_sheet, labelled_sheet


def maps(layers: int = 2, heads: int = 3, queries: int = 4, keys: int = 5) -> np.ndarray:
    random = np.random.default_rng(1)
    weights = random.random((layers, heads, queries, keys)).astype(np.float32)
    result: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return result


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 4, 15, 18), (6, 8, 30, 30)])
def test_a_contact_sheet_fits_the_grid_of_the_page(shape: tuple[int, int, int, int]) -> None:
    sheet = contact_sheet(maps(*shape), signed=False)
    smallest = max(shape[0] * shape[2], shape[1] * shape[3])
    assert max(sheet.size) <= max(256, smallest + 2 * max(shape[:2]))


def test_every_weight_is_a_square_of_one_colour_at_its_position() -> None:
    weights = maps()
    pixels = np.asarray(contact_sheet(weights, signed=False))
    colours = cell_colours(weights, ColourRange(0.0, 1.0))
    cell = (pixels.shape[1] - 2 * 3) // (3 * 5)
    for layer, head, query, key in np.ndindex(weights.shape):
        top, left = layer * (4 * cell + 2) + query * cell, head * (5 * cell + 2) + key * cell
        tile = pixels[top : top + cell, left : left + cell]
        assert (tile == colours[layer, head, query, key]).all()


def test_signed_maps_are_orange_white_and_blue() -> None:
    pixels = np.asarray(contact_sheet(np.array([[[[-2.0, 0.0, 2.0]]]], dtype=np.float32), signed=True))
    negative, zero, positive = (pixels[0, x].tolist() for x in (0, pixels.shape[1] // 2, pixels.shape[1] - 3))
    assert negative == [round(255 * channel) for channel in to_rgb(ORANGE)]
    assert zero == [255, 255, 255]
    assert positive == [round(255 * channel) for channel in to_rgb(BLUE)]


def test_a_weight_of_nan_has_the_colour_of_masked_cells() -> None:
    weights = np.full((1, 1, 2, 2), np.nan, dtype=np.float32)
    pixel = np.asarray(contact_sheet(weights, signed=False))[0, 0]
    assert pixel.tolist() == [round(255 * channel) for channel in to_rgb(HIDDEN)]


def test_a_labelled_sheet_writes_the_tokens_beside_the_maps() -> None:
    weights = maps()
    short = labelled_sheet(weights, ["a"] * 4, ["b"] * 5, title="cross", signed=False)
    long = labelled_sheet(weights, ["house"] * 4, ["mountain"] * 5, title="cross", signed=False)
    assert long.width > short.width
    assert long.height > short.height
    assert _shows(np.asarray(long), "house")


def test_a_labelled_sheet_numbers_heads_from_0() -> None:
    sheet = labelled_sheet(maps(2, 3), ["a"] * 4, ["b"] * 5, title="cross", signed=False)
    assert [head for head in range(5) if _shows(np.asarray(sheet), f"head {head}")] == [0, 1, 2]


def _shows(pixels: np.ndarray, text: str) -> bool:
    drawn = _text(text)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, drawn.shape)
    return bool((windows == drawn).all(axis=(-3, -2, -1)).any())
