"""Pictures show the numbers of the formulas, and a PNG file stores them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from catalogue.attention_pictures import attention_pictures
from catalogue.masking_pictures import masking_pictures
from catalogue.pictures import Curves, HeadBoxes, HeatMaps, number, numbers_of, png, stored_numbers
from catalogue.positional_pictures import kernel, positional_pictures
from catalogue.small_model import D_MODEL, HEADS, TIME, build_positional
from headtohead.figures.heat_map import BLUE, HIDDEN, ORANGE, ColourRange, heat_map
from headtohead.figures.style import drawing
from headtohead.plugins.registry import current
from made import case_table


def kernel_of(name: str, role: str = "encoder") -> torch.Tensor:
    effect = kernel(build_positional(current().positional(name), role, current()), role)
    assert effect is not None
    return effect


def test_the_picture_of_a_rotation_is_the_mean_cosine_of_its_angles() -> None:
    width = D_MODEL // HEADS
    found = kernel_of("rotary")
    for i in (0, 3, 15):
        for j in (0, 7, 15):
            angles = [(i - j) * 10000 ** (-2 * pair / width) for pair in range(width // 2)]
            mean = sum(map(math.cos, angles)) / len(angles)
            assert found[0, i, j].item() == pytest.approx(mean, abs=1e-12)


def test_the_picture_of_a_bias_is_the_bias() -> None:
    found = kernel_of("alibi")
    assert found.shape == (HEADS, TIME, TIME)
    for head in range(HEADS):
        slope = 2 ** (-8 * (head + 1) / HEADS)
        assert found[head, 2, 9].item() == pytest.approx(-7 * slope)


def test_heads_are_numbered_from_0() -> None:
    pictures = [*positional_pictures("alibi", current()), *attention_pictures("split-heads", current())]
    names = [[name for name, _ in picture.maps] for picture in pictures if isinstance(picture, HeatMaps)]
    names += [[name for name, _ in picture.curves] for picture in pictures if isinstance(picture, Curves)]
    assert [f"head {head}" for head in range(HEADS)] in names
    assert {name for some in names for name in some} == {f"head {head}" for head in range(HEADS)}


def test_the_picture_of_an_embedding_is_the_products_of_its_rows() -> None:
    found = kernel_of("sinusoidal")
    angles = [3 / 10000 ** (2 * pair / D_MODEL) for pair in range(D_MODEL // 2)]
    assert found[0, 5, 8].item() == pytest.approx(sum(map(math.cos, angles)) / D_MODEL)


def test_only_the_decoder_has_masked_cells() -> None:
    pictures_by_title = {
        picture.title: picture for picture in positional_pictures("alibi", current()) if isinstance(picture, HeatMaps)
    }
    decoder = pictures_by_title["decoder: added to scores"].maps[0][1]
    encoder = pictures_by_title["encoder: added to scores"].maps[0][1]
    assert all((decoder[i][j] is None) == (j > i) for i in range(TIME) for j in range(TIME))
    assert all(value is not None for row in encoder for value in row)


def test_roles_with_equal_pictures_share_them() -> None:
    pictures = positional_pictures("sinusoidal", current())
    titles = [picture.title for picture in pictures]
    assert titles[0] == "encoder, decoder: added to embeddings"
    assert sum(isinstance(picture, Curves) for picture in pictures) == 1


def test_a_mask_is_shown_with_its_padding() -> None:
    encoder, decoder, cross = masking_pictures("padding-causal", current())
    assert isinstance(decoder, HeatMaps)
    for i, row in enumerate(decoder.maps[0][1]):
        for j, value in enumerate(row):
            assert (value is not None) == (j <= i and j < 13)
    assert [picture.title for picture in (encoder, decoder, cross)] == [
        "encoder, if set for this role",
        "decoder",
        "cross-attention, if set for this role",
    ]


def test_weights_of_a_picture_are_those_of_its_style() -> None:
    heads, *weights = attention_pictures("split-heads", current())
    assert isinstance(heads, HeadBoxes)
    assert [len(row) for _, row in heads.rows] == [4, 4, 4, 4]
    for picture in weights:
        assert isinstance(picture, HeatMaps)
        for _, rows in picture.maps:
            for row in rows:
                assert sum(value or 0.0 for value in row) == pytest.approx(1.0)
        assert picture.colour_range is not None
        assert picture.colour_range.low == 0.0


def test_heads_have_their_widths_and_the_groups_of_their_keys() -> None:
    grouped = attention_pictures("grouped-query", current())[0]
    assert isinstance(grouped, HeadBoxes)
    rows = dict(grouped.rows)
    assert [group for _, group in rows["queries"]] == [0, 0, 1, 1]
    assert [group for _, group in rows["keys"]] == [0, 1]
    wide = attention_pictures("independent-heads", current())[0]
    assert isinstance(wide, HeadBoxes)
    assert {width for width, _ in dict(wide.rows)["queries"]} == {float(D_MODEL)}


@case_table(
    "picture",
    [
        pytest.param(lambda: attention_pictures("grouped-query", current())[0], id="heads"),
        pytest.param(lambda: attention_pictures("split-heads", current())[2], id="masked-weights"),
        pytest.param(lambda: positional_pictures("alibi", current())[3], id="lines"),
        pytest.param(lambda: masking_pictures("causal", current())[1], id="mask"),
    ],
    default=1,
)
def test_a_png_stores_the_numbers_that_it_shows(picture, tmp_path: Path) -> None:
    drawn = picture()
    path = tmp_path / "picture.png"
    path.write_bytes(png(drawn))
    assert stored_numbers(path) == json.loads(json.dumps(numbers_of(drawn)))


@pytest.mark.slow
def test_all_text_of_a_picture_lies_inside_it() -> None:
    for drawn in (
        *attention_pictures("free-geometry", current())[:3],
        *positional_pictures("kerple-log", current()),
        *masking_pictures("prefix", current()),
    ):
        with drawing():
            figure = drawn.draw()
            figure.draw_without_rendering()
            tight, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert tight.x0 >= 0, drawn.title
        assert tight.y0 >= 0, drawn.title
        assert tight.x1 <= width, drawn.title
        assert tight.y1 <= height, drawn.title


def test_hidden_cells_are_grey_and_colours_grow_with_numbers() -> None:
    matrix = [[1.0, 0.5, None], [0.0, -1.0, None]]
    with drawing():
        axes = Figure().subplots()
        image = heat_map(axes, np.array(matrix, dtype=float), ("a", "b"), ("c", "d", "e"))
        colours = [[to_hex(image.to_rgba(image.get_array())[i, j]) for j in range(3)] for i in range(2)]
    assert (colours[0][0], colours[1][1]) == (to_hex(BLUE), to_hex(ORANGE))
    alpha = image.to_rgba(image.get_array())[..., 3]
    assert 0 == alpha[1, 0] < alpha[0, 1] < alpha[0, 0] == 1
    assert colours[0][2] == colours[1][2] == HIDDEN
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d", "e"]


def test_a_colour_range_is_symmetric_if_numbers_have_both_signs() -> None:
    assert ColourRange.covering([-2.0, 1.0, np.nan]) == ColourRange(-2.0, 2.0)
    assert ColourRange.covering([-3.0, 0.0]) == ColourRange(-3.0, 0.0)
    assert ColourRange.covering([0.0, 0.0]) == ColourRange(0.0, 1.0)
    assert ColourRange.covering([0.2], [[0.5]]) == ColourRange(0.0, 0.5)
    assert ColourRange.covering([0.2, 0.9999], probabilities=True) == ColourRange(0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (-3.75, "−3.8"), (440.0, "440"), (0.00066, "0.00066"), (0.84, "0.84")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
