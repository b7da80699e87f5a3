"""Heat maps: the colour of every cell, the label of every row and column, and the layout of a figure."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from headtohead.figures.heat_map import (
    BLUE,
    HIDDEN,
    ORANGE,
    ColourRange,
    HeatMap,
    cell_colours,
    heat_map_figure,
)
from headtohead.figures.style import to_svg


def test_opacity_is_the_magnitude_of_a_value_and_colour_is_its_sign() -> None:
    zero, half, positive, negative, masked = ColourRange(-2.0, 2.0).colours(
        np.ma.masked_invalid([0.5, 0.75, 2.0, 0.25, np.nan])
    )
    assert [colour[3] for colour in (zero, half, positive, negative, masked)] == pytest.approx(
        [0, 0.5, 1, 0.5, 1], abs=0.01
    )
    assert tuple(half[:3]) == tuple(positive[:3]) == to_rgb(BLUE)
    assert tuple(negative[:3]) == to_rgb(ORANGE)
    assert tuple(masked[:3]) == to_rgb(HIDDEN)


def test_cells_of_sheets_have_the_colours_of_heat_maps_on_white() -> None:
    values = np.array([[-1.0, -0.3, 0.0, 0.6, 1.0, np.nan]])
    figure = heat_map_figure([HeatMap(values, ["a"], list("bcdefg"))])
    image = figure.axes[0].images[0]
    colours = image.cmap(image.norm(image.get_array()))
    on_white = colours[..., :3] * colours[..., 3:] + 1 - colours[..., 3:]
    np.testing.assert_allclose(
        cell_colours(values, ColourRange(-1.0, 1.0)) / 255, on_white, atol=1 / 255
    )


def test_every_row_column_and_map_has_its_name() -> None:
    values = np.arange(6).reshape(2, 3)
    first = HeatMap(values, ["<a>", "b"], ["x", "$y$", "z"], "first")
    second = HeatMap(values, ["c", "d"], ["u", "v", "w"], "second")
    svg = to_svg(heat_map_figure([first, second]), salt="test", title="Maps")
    texts = [element for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
    names = {"<a>", "b", "x", "$y$", "z", "c", "d", "u", "v", "w", "first", "second"}
    assert sorted("".join(element.itertext()).strip() for element in texts) == sorted(names)
    assert svg.count("<image ") == 2


@pytest.mark.parametrize("count", [1, 2, 7])
def test_maps_stand_side_by_side_without_overlap(count: int) -> None:
    heat_map = HeatMap(
        np.eye(4), list("abcd"), list("efgh"), "a title · of several · values · that wraps"
    )
    figure = heat_map_figure([heat_map] * count, across=3)
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == count
    for first in range(count):
        assert 0 < boxes[first].x0 < boxes[first].x1 <= 1
        assert 0 < boxes[first].y0 < boxes[first].y1 <= 1
        for second in range(first):
            assert not boxes[first].overlaps(boxes[second])
