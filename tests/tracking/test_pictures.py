"""Attention maps as pictures: weights are seen as they are, never smoothed."""

from __future__ import annotations

import numpy as np
import pytest

from headtohead.tracking.pictures import COLOURS, WHITE, _label, contact_sheet, labelled_sheet


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


def test_every_weight_is_a_square_of_one_colour_in_its_place() -> None:
    weights = maps()
    pixels = np.asarray(contact_sheet(weights, signed=False))
    cell = (pixels.shape[1] - 2 * 3) // (3 * 5)
    for layer, head, query, key in np.ndindex(weights.shape):
        top, left = layer * (4 * cell + 2) + query * cell, head * (5 * cell + 2) + key * cell
        tile = pixels[top : top + cell, left : left + cell]
        assert (tile == int(weights[layer, head, query, key] * (COLOURS - 1))).all()


def test_signed_maps_put_zero_in_the_middle_of_the_colours() -> None:
    weights = np.array([[[[-2.0, 0.0, 2.0]]]], dtype=np.float32)
    levels = np.unique(np.asarray(contact_sheet(weights, signed=True)))
    assert set(levels) == {0, (COLOURS - 1) // 2, COLOURS - 1, WHITE}


def test_a_weight_that_is_not_a_number_is_drawn_as_none() -> None:
    weights = np.full((1, 1, 2, 2), np.nan, dtype=np.float32)
    assert np.asarray(contact_sheet(weights, signed=False))[0, 0] == 0


def test_a_labelled_sheet_writes_the_tokens_beside_the_maps() -> None:
    weights = maps()
    short = labelled_sheet(weights, ["a"] * 4, ["b"] * 5, title="cross", signed=False)
    long = labelled_sheet(weights, ["house"] * 4, ["mountain"] * 5, title="cross", signed=False)
    assert long.width > short.width
    assert long.height > short.height
    grey = np.asarray(long)
    assert ((grey >= COLOURS) & (grey < WHITE)).any()


def test_a_labelled_sheet_numbers_heads_from_0() -> None:
    sheet = labelled_sheet(maps(2, 3), ["a"] * 4, ["b"] * 5, title="cross", signed=False)
    assert [head for head in range(5) if _shows(np.asarray(sheet), f"head {head}")] == [0, 1, 2]


def _shows(pixels: np.ndarray, text: str) -> bool:
    label = _label(text)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, label.shape)
    return bool((windows == label).all(axis=(-2, -1)).any())
