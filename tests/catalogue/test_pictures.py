"""Pictures show the numbers of the formulas, and a PNG file stores them."""

import json
import math
from pathlib import Path

import pytest
import torch

from catalogue.attention_pictures import attention_pictures
from catalogue.masking_pictures import masking_pictures
from catalogue.pictures import HeatMaps, numbers_of, png, same_numbers, stored_numbers
from catalogue.positional_pictures import kernel
from catalogue.small_model import D_MODEL, HEADS, build_positional
from headtohead.plugins.registry import find_positional


def kernel_of(name: str) -> torch.Tensor:
    effect = kernel(build_positional(find_positional(name), "encoder"), "encoder")
    assert effect is not None
    return effect


def test_the_picture_of_a_rotation_is_the_mean_cosine_of_its_angles() -> None:
    width, found = D_MODEL // HEADS, kernel_of("rotary")
    for i, j in ((0, 7), (3, 0), (15, 15)):
        angles = [(i - j) * 10000 ** (-2 * pair / width) for pair in range(width // 2)]
        assert found[0, i, j].item() == pytest.approx(
            sum(map(math.cos, angles)) / len(angles), abs=1e-12
        )


def test_the_picture_of_a_bias_is_the_bias() -> None:
    found = kernel_of("alibi")
    slopes = [2 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)]
    assert found[:, 2, 9].tolist() == pytest.approx([-7 * slope for slope in slopes])


def test_the_picture_of_an_embedding_is_the_products_of_its_rows() -> None:
    angles = [3 / 10000 ** (2 * pair / D_MODEL) for pair in range(D_MODEL // 2)]
    assert kernel_of("sinusoidal")[0, 5, 8].item() == pytest.approx(
        sum(map(math.cos, angles)) / D_MODEL
    )


def test_a_mask_is_shown_with_its_padding() -> None:
    decoder = masking_pictures("padding-causal")[1]
    assert isinstance(decoder, HeatMaps)
    for i, row in enumerate(decoder.maps[0][1]):
        assert [value is not None for value in row] == [j <= i and j < 13 for j in range(len(row))]


def test_rows_of_pictured_weights_sum_to_one_and_a_png_stores_them(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    for picture in attention_pictures("split-heads")[1:]:
        assert isinstance(picture, HeatMaps)
        assert all(
            sum(value or 0.0 for value in row) == pytest.approx(1.0)
            for _, rows in picture.maps
            for row in rows
        )
    path.write_bytes(png(picture))
    assert stored_numbers(path) == json.loads(json.dumps(numbers_of(picture)))


def test_rounding_of_another_machine_does_not_make_a_picture_stale() -> None:
    def numbers(value: float | None) -> object:
        return numbers_of(
            HeatMaps(
                "weights", [("", [[value, 0.0]])], ("a",), ("b", "c"), "query", "key", "weight"
            )
        )

    assert same_numbers(numbers(0.5), numbers(0.5 + 1e-9))
    assert not same_numbers(numbers(0.5), numbers(0.6))
    assert not same_numbers(numbers(0.5), numbers(None))
