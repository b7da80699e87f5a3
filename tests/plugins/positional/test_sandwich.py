"""Sandwich against loops, and the equivalence of its two formulas."""

import math

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config


def sandwich(heads=4, **options):
    return Subject(tiny_config({"name": "sandwich", **options}, heads=heads)).positional("encoder")


@pytest.mark.parametrize("width", [128, 6])
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_biases_equal_the_sum_of_cosines_divided_by_the_ratio_of_the_head(heads, width):
    queries, keys = torch.tensor([[0, 5]]), torch.tensor([[0, 2, 5, 90]])
    found = sandwich(heads, width=width).bias(queries, keys, "encoder", 0)
    assert found.shape == (1, 1, heads, 2, 4)
    for head in range(heads):
        ratio = 8 / heads * (head + 1)
        for a, i in enumerate(queries[0].tolist()):
            for b, j in enumerate(keys[0].tolist()):
                waves = [math.cos((i - j) / 10000 ** (2 * k / width)) for k in range(width // 2)]
                expected = (sum(waves) - width / 2) / ratio
                assert found[0, 0, head, a, b].item() == pytest.approx(expected, abs=1e-10)


def test_biases_fall_logarithmically_but_not_at_every_distance():
    far = torch.arange(1, 51)[None]
    falls = -sandwich(heads=1).bias(torch.tensor([[0]]), far, "encoder", 0)[0, 0, 0, 0]

    def explained(x):
        return torch.corrcoef(torch.stack([x, falls]))[0, 1].item() ** 2

    assert explained(far[0].double().log()) > 0.97
    assert explained(far[0].double()) < 0.8
    assert (falls.diff() < 0).any(), "cosines turn back: it promises no strict fall"


def test_biases_are_symmetric_because_of_the_cosine():
    """A public copy sums the angles themselves, which penalises earlier keys and favours later keys.

    github.com/NVIDIA/NeMo had ``sum(relative_position * inv_freq)`` in ``sandwich_pos_bias``.
    """
    positions = torch.arange(6)[None]
    found = sandwich().bias(positions, positions, "encoder", 0)
    assert torch.equal(found, found.transpose(-2, -1))
    assert (found <= 0).all()
