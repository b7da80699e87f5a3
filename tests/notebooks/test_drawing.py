"""Pictures as HTML: every text of the data is escaped, and numbers have the right positions."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from headtohead_notebooks.page.drawing import HEIGHT, WIDTH, draw, interval

HOSTILE = '<b onclick="x">&'


def cell(text: str, mark: str = "") -> dict[str, Any]:
    return {"text": text, "mark": mark, "hue": 0, "note": text}


PICTURES: list[dict[str, Any]] = [
    {
        "kind": "strips",
        "note": HOSTILE,
        "grid": grid,
        "panels": [{"title": HOSTILE, "rows": [{"label": HOSTILE, "cells": [cell(HOSTILE)]}]}],
    }
    for grid in (True, False)
] + [
    {
        "kind": "heat",
        "note": HOSTILE,
        "rows": [HOSTILE],
        "columns": [HOSTILE],
        "panels": [{"title": HOSTILE, "cells": [[{"text": HOSTILE, "shade": 0.5}]]}],
    },
    {"kind": "bars", "note": HOSTILE, "bars": [{"label": HOSTILE, "parts": [{"name": HOSTILE, "share": 1.0}]}]},
]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture["kind"])
def test_no_text_of_a_picture_becomes_markup(picture: dict[str, Any]) -> None:
    drawn = str(draw(picture))
    assert "<b onclick" not in drawn
    assert "&lt;b onclick=&#34;x&#34;&gt;&amp;" in drawn


def x_positions(drawn: str, kind: str) -> list[float]:
    (found,) = re.findall(rf'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*class="{kind}"', drawn)
    return [float(x) for x in found]


def test_an_interval_is_drawn_at_its_numbers() -> None:
    drawn = str(interval(-0.5, 0.0, 0.5, (-1.0, 1.0)))
    room = WIDTH - 8
    assert x_positions(drawn, "bar") == [4 + room / 4, 4 + room * 3 / 4]
    assert x_positions(drawn, "zero") == [WIDTH / 2, WIDTH / 2]
    assert f'cx="{WIDTH / 2}" cy="{HEIGHT / 2}"' in drawn


def test_intervals_are_clipped_to_the_axis() -> None:
    assert x_positions(str(interval(-9.0, 0.5, 9.0, (0.0, 1.0))), "bar") == [4, WIDTH - 4]


def test_a_single_seed_has_a_dot_and_no_bar() -> None:
    drawn = str(interval(math.nan, 0.5, math.nan, (0.0, 1.0)))
    assert 'class="bar"' not in drawn
    assert 'class="dot"' in drawn
