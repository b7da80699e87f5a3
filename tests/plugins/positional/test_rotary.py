"""Rotary against complex numbers: a pair of components is a number, rotated by its position."""

import cmath

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

WIDTH, TIME = 8, 5


def rotated(vector, position, theta):
    numbers = [complex(vector[i], vector[i + 1]) for i in range(0, WIDTH, 2)]
    return [number * cmath.exp(1j * position * theta ** (-2 * i / WIDTH)) for i, number in enumerate(numbers)]


@pytest.mark.parametrize("theta", [10000.0, 50.0])
def test_pairs_are_rotated_as_complex_numbers(theta):
    rotary = Subject(tiny_config({"name": "rotary", "theta": theta}, "single-head", d_model=WIDTH)).positional(
        "encoder"
    )
    x = torch.randn(2, 3, 1, TIME, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = rotary.rotate(x, torch.arange(TIME).unsqueeze(0), "encoder")
    for position in range(TIME):
        expected = rotated(x[1, 2, 0, position].tolist(), position, theta)
        pairs = found[1, 2, 0, position].tolist()
        for i, number in enumerate(expected):
            assert pairs[2 * i] == pytest.approx(number.real, abs=1e-12)
            assert pairs[2 * i + 1] == pytest.approx(number.imag, abs=1e-12)


def test_scores_depend_on_the_difference_of_positions_only():
    subject = Subject(tiny_config("rotary", "single-head", d_model=WIDTH))
    x, _ = subject.activations("decoder")
    seen = {}
    subject.attention("decoder")(x, None, subject.attention_context("decoder"), None, seen.__setitem__)
    weight = subject.attention("decoder").queries_keys_values
    q, k, _ = (x[0, 0] @ weight.weight[0] + weight.bias[0]).split(WIDTH, dim=-1)
    for i in range(TIME):
        for j in range(TIME):
            pairs = zip(rotated(q[i].tolist(), i - j, 10000.0), rotated(k[j].tolist(), 0, 1.0), strict=True)
            expected = sum((a * b.conjugate()).real for a, b in pairs) * WIDTH**-0.5
            assert seen["scores"][0, 0, 0, i, j].item() == pytest.approx(expected, abs=1e-12)
