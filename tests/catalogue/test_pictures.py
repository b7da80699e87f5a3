"""What pictures are drawn from are the numbers of the mathematics, and colours follow them."""

from __future__ import annotations

import math

import pytest
import torch

from headtohead.plugins.registry import current
from headtohead.tools.catalogue.attention_pictures import attention_panels
from headtohead.tools.catalogue.masking_pictures import masking_panels
from headtohead.tools.catalogue.panels import Heads, Heat, Lines, Words
from headtohead.tools.catalogue.positional_pictures import kernel, positional_panels
from headtohead.tools.catalogue.small import D_MODEL, HEADS, TIME, build_positional
from headtohead.tools.catalogue.svg import HIDDEN, Scale, cells, number


def kernel_of(name: str, role: str = "encoder") -> torch.Tensor:
    found = kernel(build_positional(current().positional(name), role, current()), role)
    assert found is not None
    return found


def test_the_picture_of_a_rotation_is_the_mean_cosine_of_its_angles() -> None:
    width = D_MODEL // HEADS
    found = kernel_of("rotary")
    for i in (0, 3, 15):
        for j in (0, 7, 15):
            angles = [(i - j) * 10000 ** (-2 * one / width) for one in range(width // 2)]
            mean = sum(map(math.cos, angles)) / len(angles)
            assert found[0, i, j].item() == pytest.approx(mean, abs=1e-12)


def test_the_picture_of_a_bias_is_the_bias() -> None:
    found = kernel_of("alibi")
    assert found.shape == (HEADS, TIME, TIME)
    for head in range(HEADS):
        slope = 2 ** (-8 * (head + 1) / HEADS)
        assert found[head, 2, 9].item() == pytest.approx(-7 * slope)


def test_heads_are_numbered_from_0() -> None:
    panels = [*positional_panels("alibi", current()), *attention_panels("split-heads", current())]
    names = [[name for name, _ in panel.maps] for panel in panels if isinstance(panel, Heat)]
    names += [[name for name, _ in panel.curves] for panel in panels if isinstance(panel, Lines)]
    assert [f"head {head}" for head in range(HEADS)] in names
    assert {name for some in names for name in some} == {f"head {head}" for head in range(HEADS)}


def test_the_picture_of_an_embedding_is_the_products_of_its_rows() -> None:
    found = kernel_of("sinusoidal")
    angles = [3 / 10000 ** (2 * one / D_MODEL) for one in range(D_MODEL // 2)]
    assert found[0, 5, 8].item() == pytest.approx(sum(map(math.cos, angles)) / D_MODEL)


def test_the_decoder_hides_what_its_mask_hides_and_the_encoder_nothing() -> None:
    heats = {panel.title: panel for panel in positional_panels("alibi", current()) if isinstance(panel, Heat)}
    decoder = heats["decoder: added to scores"].maps[0][1]
    encoder = heats["encoder: added to scores"].maps[0][1]
    assert all((decoder[i][j] is None) == (j > i) for i in range(TIME) for j in range(TIME))
    assert all(value is not None for row in encoder for value in row)


def test_roles_that_show_the_same_share_a_picture_and_refused_ones_say_why() -> None:
    panels = positional_panels("sinusoidal", current())
    titles = [panel.title for panel in panels]
    assert titles[0] == "encoder, decoder: added to embeddings"
    assert sum(isinstance(panel, Lines) for panel in panels) == 1
    last = panels[-1]
    assert isinstance(last, Words)
    assert last.title == "cross-attention"
    assert "cross-attention has none of" in last.words


def test_a_mask_is_shown_as_it_is_with_its_padding() -> None:
    encoder, decoder, cross = masking_panels("padding-causal", current())
    assert isinstance(decoder, Heat)
    for i, row in enumerate(decoder.maps[0][1]):
        for j, value in enumerate(row):
            assert (value is not None) == (j <= i and j < 13)
    assert [panel.title for panel in (encoder, decoder, cross)] == [
        "encoder, if named there",
        "decoder",
        "cross-attention, if named there",
    ]


def test_weights_of_a_picture_are_those_of_its_style() -> None:
    heads, *weights = attention_panels("split-heads", current())
    assert isinstance(heads, Heads)
    assert [len(row) for _, row in heads.rows] == [4, 4, 4, 4]
    for panel in weights:
        assert isinstance(panel, Heat)
        for _, rows in panel.maps:
            for row in rows:
                assert sum(value or 0.0 for value in row) == pytest.approx(1.0)
        assert panel.chosen_scale().low == 0.0


def test_heads_are_drawn_to_scale_and_share_colours_with_what_they_read() -> None:
    grouped = attention_panels("grouped-query", current())[0]
    assert isinstance(grouped, Heads)
    rows = dict(grouped.rows)
    assert [group for _, group in rows["queries"]] == [0, 0, 1, 1]
    assert [group for _, group in rows["keys"]] == [0, 1]
    wide = attention_panels("independent-heads", current())[0]
    assert isinstance(wide, Heads)
    assert {width for width, _ in dict(wide.rows)["queries"]} == {float(D_MODEL)}


def test_colours_grow_with_numbers_and_tell_signs_apart() -> None:
    scale = Scale.of([-2.0, 1.0])
    assert (scale.low, scale.high) == (-2.0, 2.0)
    assert (scale.colour(2.0), scale.colour(-2.0), scale.colour(0.0)) == ("#0072b2", "#d55e00", "#ffffff")
    assert scale.colour(1.0) == "#80b8d8"
    assert Scale.of([-3.0, 0.0]) == Scale(-3.0, 0.0)
    assert Scale.of([0.0, 0.0]) == Scale(0.0, 1.0)
    assert Scale.of([0.2, 0.5]) == Scale(0.0, 0.5)


def test_cells_stand_in_their_places_and_none_is_hidden() -> None:
    drawn = cells(0, 0, 10, [[1.0, 1.0, None], [0.0, None, 1.0]], Scale(0, 1))
    assert f'fill="{HIDDEN}" d="M2 0h1v1h-1zM1 1h1v1h-1z"' in drawn
    assert 'fill="#0072b2" d="M0 0h2v1h-2zM2 1h1v1h-1z"' in drawn
    assert 'fill="#ffffff" d="M0 1h1v1h-1z"' in drawn


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (-3.75, "−3.8"), (440.0, "440"), (0.00066, "0.00066"), (0.84, "0.84")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
