"""Heat maps: every cell has its colour, every row and column its label, and the figure its maps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from headtohead.figures.heat_map import LONGEST_LABEL, HeatMap, coloured, heat_map_figure, label
from headtohead.figures.style import GRID, PALETTE, to_svg


def drawn(*maps: HeatMap, **options: object) -> str:
    return to_svg(heat_map_figure(maps, **options), salt="test")  # type: ignore[arg-type]


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()).strip() for one in ET.fromstring(svg).iter() if one.tag.endswith("text")]


def test_alpha_is_the_size_of_a_value_and_the_colour_its_sign() -> None:
    colours = coloured(np.array([[0.0, 0.5, 4.0, -1.0, np.nan]]), limit=2.0)[0]
    assert colours[:, 3].tolist() == [0.0, 0.25, 1.0, 0.5, 1.0]
    assert tuple(colours[2, :3]) == to_rgb(PALETTE[0])
    assert tuple(colours[3, :3]) == to_rgb(PALETTE[1])
    assert tuple(colours[4, :3]) == to_rgb(GRID)


def test_every_row_column_and_map_has_its_name() -> None:
    values = np.arange(6).reshape(2, 3)
    svg = drawn(
        HeatMap(values, ["<a>", "b"], ["x", "$y$", "z"], "first"),
        HeatMap(values, ["c", "d"], ["u", "v", "w"], "second", texts=[["1", "2", "3"], ["4", "5", "6"]]),
        row_axis="queries",
        column_axis="keys",
    )
    names = {"<a>", "b", "x", "$y$", "z", "c", "d", "u", "v", "w", "first", "second", "queries", "keys", *"123456"}
    assert sorted(texts(svg)) == sorted(names)
    assert svg.count("<image ") == 2


def test_labels_have_one_line_and_an_end() -> None:
    assert label("a\nb") == "a b"
    assert len(label("x" * 99)) == LONGEST_LABEL


@pytest.mark.parametrize("count", [1, 2, 7])
def test_maps_stand_side_by_side_without_overlap(count: int) -> None:
    one = HeatMap(np.eye(4), list("abcd"), list("efgh"), "a title · of several · values · that wraps")
    figure = heat_map_figure([one] * count, across=3)
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == count
    for first in range(count):
        assert 0 < boxes[first].x0 < boxes[first].x1 <= 1
        assert 0 < boxes[first].y0 < boxes[first].y1 <= 1
        for second in range(first):
            assert not boxes[first].overlaps(boxes[second])


def test_without_a_limit_the_largest_value_of_all_maps_has_the_full_colour() -> None:
    small, large = HeatMap(np.full((1, 1), 1.0), ["a"], ["b"]), HeatMap(np.full((1, 1), -4.0), ["a"], ["b"])
    alphas = [axes.images[0].get_array()[0, 0, 3] for axes in heat_map_figure([small, large], limit=None).axes]
    assert alphas == [0.25, 1.0]


def test_the_same_maps_have_the_same_bytes() -> None:
    one = HeatMap(np.random.default_rng(1).random((5, 5)), list("abcde"), list("fghij"))
    assert drawn(one) == drawn(one)
    assert re.search(r"data:image/png;base64", drawn(one))
