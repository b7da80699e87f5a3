"""Calculations of cells: the result equals the cell, or there is no example."""

import math

import numpy as np
import pytest

from headtohead_notebooks.trace import examples

ONE, TWO = np.array([[1.0, 2.0], [3.0, -4.0]]), np.array([[0.5, 0.25], [-1.0, 2.0]])
SHARES = np.array([[0.5, 0.5], [0.25, 0.75]])

RIGHT = {
    "product": (
        examples.product,
        (ONE, TWO, 0.5, 0.5 * ONE @ TWO.T),
        "(3.000·0.500 + (−4.000)·0.250) · 0.500 = 0.250",
    ),
    "share": (
        examples.softmax_weight,
        (ONE, np.exp(ONE) / np.exp(ONE).sum(-1, keepdims=True)),
        "e^{3.000} / (e^{3.000} + e^{−4.000}) = 0.999",
    ),
    "mixture": (
        examples.weighted_sum,
        (SHARES, TWO, SHARES @ TWO),
        "0.250·0.500 + 0.750·(−1.000) = −0.625",
    ),
}


@pytest.mark.parametrize(("compute", "arguments", "text"), RIGHT.values(), ids=RIGHT.keys())
def test_a_cell_is_computed_by_its_formula_or_has_no_example(compute, arguments, text):
    assert compute(*arguments) == text
    *inputs, result = arguments
    assert compute(*inputs, result + 0.5) == ""


def test_masked_scores_are_omitted_from_a_softmax_weight():
    scores = np.array([[1.0, 2.0, -math.inf], [1.0, 2.0, -1e9]])
    weights = np.array([[0.269, 0.731, 0.0]] * 2)
    assert examples.softmax_weight(scores, weights) == "e^{1.000} / (e^{1.000} + e^{2.000}) = 0.269"
    assert examples.softmax_weight(np.full((1, 2), -1e9), np.full((1, 2), 0.5)) == ""

    scores = np.array([[-1000.0, 1000.0]])  # exponentials overflow
    assert examples.softmax_weight(scores, np.array([[0.0, 1.0]])).endswith(" = 0.000")
