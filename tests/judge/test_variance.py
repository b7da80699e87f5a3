"""Variance components against loops, scipy and the plain jackknife."""

import itertools

import numpy as np
import pytest

from headtohead_judge.examples import source_of_examples
from headtohead_judge.variance import (
    example_variance,
    intraclass_correlation,
    jackknife,
    variant_variance,
)


def mean_squares(values):
    """Return the mean squares of rows, columns and residuals by loops."""
    rows, columns = len(values), len(values[0])
    mean = sum(map(sum, values)) / (rows * columns)
    row_means = [sum(row) / columns for row in values]
    column_means = [sum(row[j] for row in values) / rows for j in range(columns)]
    row = columns * sum((value - mean) ** 2 for value in row_means) / (rows - 1)
    column = rows * sum((value - mean) ** 2 for value in column_means) / (columns - 1)
    cells = itertools.product(range(rows), range(columns))
    residual = sum((values[i][j] - row_means[i] - column_means[j] + mean) ** 2 for i, j in cells)
    return row, column, residual / ((rows - 1) * (columns - 1))


def test_the_variance_over_examples_equals_its_definition():
    generator = np.random.default_rng(1)
    x = (
        generator.normal(size=(5, 1))
        + generator.normal(size=(1, 9))
        + generator.normal(size=(5, 9))
    )
    _, example, residual = mean_squares(x.tolist())
    assert example > residual
    assert example_variance(x) == pytest.approx((example - residual) / 45)


def test_without_an_effect_of_examples_their_variance_is_zero():
    by_seed = np.array([0.1, 0.4, 0.2, 0.5])
    alternating = np.where(
        np.add.outer(range(4), range(8)) % 2, 0.3, -0.3
    )  # mean 0 in each seed and each example
    values = by_seed[:, None] + alternating
    assert example_variance(values) < 0
    assert source_of_examples(values).variance == 0
    with pytest.raises(ValueError, match="two seeds and two examples"):
        example_variance(values[:1])


def test_jackknife_values_of_a_mean_are_its_terms():
    x = np.random.default_rng(2).normal(size=(3, 7))
    without = (x.sum(axis=1, keepdims=True) - x) / 6
    assert jackknife(x.mean(axis=1), without) == pytest.approx(x)


def test_jackknife_values_of_a_ratio_have_its_jackknife_error():
    generator = np.random.default_rng(3)
    a, b = generator.poisson(5, size=(2, 40)) + 1.0
    without = np.array([np.delete(a, j).sum() / np.delete(b, j).sum() for j in range(40)])
    values = jackknife([a.sum() / b.sum()], without[None])[0]
    assert values.mean() == pytest.approx(a.sum() / b.sum())
    error = (39 / 40 * ((without - without.mean()) ** 2).sum()) ** 0.5
    assert values.std(ddof=1) / 40**0.5 == pytest.approx(error)


def test_the_intraclass_correlation_is_that_of_shrout_and_fleiss():
    # Shrout and Fleiss (1979), table 2: six targets, four judges; ICC(3, 1) = 0.71, in R's psych with 0.34 to 0.95
    judged = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found, interval = intraclass_correlation(np.transpose(judged))
    assert found == pytest.approx(0.7148, abs=5e-5)
    assert (interval.low, interval.high) == pytest.approx((0.34, 0.95), abs=5e-3)


def test_the_variance_of_variants_does_not_depend_on_seed_effects_that_they_share():
    generator = np.random.default_rng(6)
    x = generator.normal(size=(5, 1)) + 0.1 * generator.normal(size=(5, 4))
    variant, _, residual = mean_squares(x.tolist())
    assert variant_variance(x) == pytest.approx((variant - residual) / 4)
    assert variant_variance(x + 10 * generator.normal(size=4)) == pytest.approx(variant_variance(x))
    assert np.isnan(variant_variance(x[:1]))
