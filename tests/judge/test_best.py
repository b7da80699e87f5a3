"""Comparisons with the best, against loops over scipy's tests."""

import math

import numpy as np
import pytest
from scipy import stats

from headtohead_judge.best import BestComparison, compare_with_best
from headtohead_judge.contrast import ScoreTable, Side


@pytest.fixture
def scores() -> np.ndarray:
    means = np.array([0.9, 0.89, 0.85, 0.3])
    return means[:, None] + np.random.default_rng(1).normal(0, 0.01, (4, 6))


def compared(scores: np.ndarray, **options: object) -> list[BestComparison]:
    """Return the comparisons of rows of scores, each with the variance of its own differences."""
    by_side = {}
    for number, row in enumerate(scores):
        by_side[Side(str(number), "accuracy")] = dict(enumerate(row.tolist()))
    return [*compare_with_best([*by_side], ScoreTable(by_side), **options).values()]


def intervals(scores: np.ndarray, variant: int) -> list[tuple[float, float]]:
    """Return the simultaneous intervals of a variant against all others, by scipy."""
    found = []
    for row in np.delete(scores, variant, axis=0):
        difference = scores[variant] - row
        result = stats.ttest_1samp(difference[np.isfinite(difference)], 0)
        ends = result.confidence_interval(0.95 ** (1 / 3))
        found.append((ends.low, ends.high))
    return found


def test_a_variant_is_worse_if_an_interval_against_another_one_is_below_zero(
    scores: np.ndarray,
) -> None:
    assert [found.is_worse for found in compared(scores)] == [False, False, True, True]
    missing = scores.copy()
    missing[2, 4] = np.nan  # leaves its seed out of the comparisons of this variant only
    for values in (scores, missing):
        for variant, found in enumerate(compared(values)):
            expected = intervals(values, variant)
            assert found.is_worse == any(high < 0 for _, high in expected)
            assert found.largest_deficit == pytest.approx(max(0.0, *(-low for low, _ in expected)))


def test_a_variant_is_equivalent_to_the_best_if_all_intervals_are_above_minus_the_margin(
    scores: np.ndarray,
) -> None:
    found = compared(scores, margin=0.05)
    expected = []
    for variant in range(4):
        expected.append(all(low > -0.05 for low, _ in intervals(scores, variant)))
    assert [row.is_equivalent for row in found] == expected == [True, True, False, False]
    assert not any(row.is_equivalent for row in compared(scores))


def test_the_p_of_a_worse_variant_is_the_smallest_adjusted_one_of_those_above_it(
    scores: np.ndarray,
) -> None:
    for variant, found in enumerate(compared(scores)):
        p_values = [1.0]
        for row in np.delete(scores, variant, axis=0):
            if row.mean() > scores[variant].mean():
                p_values.append(1 - (1 - stats.ttest_rel(row, scores[variant]).pvalue) ** 3)
        assert found.worse_p == pytest.approx(min(p_values))


def test_for_losses_the_lowest_is_the_best(scores: np.ndarray) -> None:
    higher = compared(scores, margin=0.05)
    lower = compared(1 - scores, margin=0.05, higher_is_better=False)
    for left, right in zip(higher, lower, strict=True):
        assert (left.is_worse, left.is_equivalent) == (right.is_worse, right.is_equivalent)
        assert left.largest_deficit == pytest.approx(right.largest_deficit)
        assert left.worse_p == pytest.approx(right.worse_p)


def test_differences_without_variance_need_enough_seeds_for_their_signs() -> None:
    few = compared(np.array([[1.0] * 5, [0.5] * 5]), margin=0.6)
    assert [(row.is_worse, row.is_equivalent) for row in few] == [(False, False)] * 2
    assert few[0].largest_deficit == math.inf
    enough = compared(np.array([[1.0] * 6, [0.5] * 6]), margin=0.6)
    assert [(row.is_worse, row.is_equivalent) for row in enough] == [(False, True), (True, True)]
    assert enough[1].largest_deficit == 0.5


def test_a_single_variant_has_no_comparison() -> None:
    with pytest.raises(ValueError, match="two variants"):
        compared(np.ones((1, 6)))
