"""Calculations of cells: the result equals the cell, or there is no example."""

import math

import numpy as np
import pytest

from headtohead_notebooks.trace import examples

ONE, TWO = np.array([[1.0, 2.0], [3.0, -4.0]]), np.array([[0.5, 0.25], [-1.0, 2.0]])
SHARES = np.array([[0.5, 0.5], [0.25, 0.75]])
NORMED = np.array([[-1.0, 1.0], [1.0, -1.0]])

RIGHT = {
    "scaled": (examples.scaled, (ONE, 3.0, 3 * ONE), (0, 0, "1.000 · 3.000 = 3.000")),
    "added": (examples.added, (ONE, TWO, ONE + TWO, 1), (1, 0, "3.000 − 1.000 = 2.000")),
    "product": (
        examples.product,
        (ONE, TWO, 0.5, 0.5 * ONE @ TWO.T),
        (1, 0, "(3.000·0.500 + (−4.000)·0.250) · 0.500 = 0.250"),
    ),
    "share": (
        examples.softmax_weight,
        (ONE, np.exp(ONE) / np.exp(ONE).sum(-1, keepdims=True)),
        (1, 0, "e^{3.000} / (e^{3.000} + e^{−4.000}) = 0.999"),
    ),
    "mixture": (examples.weighted_sum, (SHARES, TWO, SHARES @ TWO), (1, 0, "0.250·0.500 + 0.750·(−1.000) = −0.625")),
    "activated": (examples.relu, (ONE, ONE.clip(0)), (1, 1, "max(0, −4.000) = 0.000")),
    "normalised": (examples.layer_norm, (ONE, 1e-5, NORMED), (0, 0, "(1.000 − 1.500) / √(0.250 + 1e−5) = −1.000")),
}


@pytest.mark.parametrize(("compute", "arguments", "cell"), RIGHT.values(), ids=RIGHT.keys())
def test_a_cell_is_computed_by_its_formula(compute, arguments, cell):
    assert compute(*arguments) == examples.CellExample(*cell)


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "normalised"])
def test_a_cell_that_differs_from_its_formula_has_no_example(name):
    compute, arguments, _ = RIGHT[name]
    result = 3 if name == "product" else 2 if name in ("scaled", "added", "mixture") else 1
    wrong = [value + 0.5 if index == result else value for index, value in enumerate(arguments)]
    assert compute(*wrong) is None


def test_masked_scores_are_omitted_from_a_softmax_weight():
    scores = np.array([[1.0, 2.0, -math.inf], [1.0, 2.0, -1e9]])
    weights = np.array([[0.269, 0.731, 0.0]] * 2)
    assert examples.softmax_weight(scores, weights).text == "e^{1.000} / (e^{1.000} + e^{2.000}) = 0.269"
    assert examples.softmax_weight(np.full((1, 2), -1e9), np.full((1, 2), 0.5)) is None

    scores = np.array([[-1000.0, 1000.0]])  # exponentials overflow
    assert examples.softmax_weight(scores, np.array([[0.0, 1.0]])).text.endswith(" = 0.000")
