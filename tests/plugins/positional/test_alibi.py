"""Slopes of the paper and of its authors' code, and the resulting biases."""

import pytest
import torch

from headtohead_plugins.positional.alibi import biases, slopes

SLOPES = {
    1: [2**-8],
    2: [2**-4, 2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    8: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    12: [*(2**-n for n in range(1, 9)), 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
}


@pytest.mark.parametrize("heads", SLOPES)
def test_slopes_equal_those_of_the_paper(heads):
    assert slopes(heads) == pytest.approx(SLOPES[heads], rel=1e-15)


@pytest.mark.parametrize("heads", [1, 5, 32])
def test_every_number_of_heads_gets_distinct_positive_slopes(heads):
    found = slopes(heads)
    assert len(set(found)) == heads
    assert all(0 < slope < 1 for slope in found)


def test_biases_fall_with_distance_in_both_directions():
    positions = torch.arange(4).unsqueeze(0)
    found = biases(positions, positions, 2)
    assert found.shape == (1, 1, 2, 4, 4)
    for head, slope in enumerate((2**-4, 2**-8)):
        for i in range(4):
            for j in range(4):
                assert found[0, 0, head, i, j].item() == -slope * abs(i - j)
