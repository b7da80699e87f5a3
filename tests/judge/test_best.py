"""Comparisons with the best, against loops over scipy's tests."""

import math

import numpy as np
import pytest
from scipy import stats

from headtohead_judge.best import compare_with_best


@pytest.fixture
def scores() -> np.ndarray:
    means = np.array([0.9, 0.89, 0.85, 0.3])
    return means[:, None] + np.random.default_rng(1).normal(0, 0.01, (4, 6))


def test_worse_p_is_the_smallest_one_sided_p_against_all_others_times_their_number(
    scores: np.ndarray,
) -> None:
    assert [found.is_worse for found in compare_with_best(scores)] == [False, False, True, True]
    assert all(math.isnan(found.equivalence_p) for found in compare_with_best(scores))
    missing = scores.copy()
    missing[2, 4] = np.nan  # leaves its seed out of the comparisons of this variant only
    for values in (scores, missing):
        for own, found in enumerate(compare_with_best(values)):
            p_values = []
            for row in np.delete(values, own, axis=0):
                known = np.isfinite(row - values[own])
                p_values.append(
                    stats.ttest_rel(row[known], values[own][known], alternative="greater").pvalue
                )
            assert found.worse_p == pytest.approx(min(1.0, 3 * min(p_values)))


def test_equivalence_p_is_the_largest_one_sided_p_that_another_variant_is_better_adjusted_by_holm(
    scores: np.ndarray,
) -> None:
    margin = 0.05
    found = compare_with_best(scores, margin=margin)
    p_values = [
        max(
            stats.ttest_1samp(row - other, -margin, alternative="greater").pvalue
            for index, other in enumerate(scores)
            if index != own
        )
        for own, row in enumerate(scores)
    ]
    running, adjusted = 0.0, {}
    for rank, index in enumerate(np.argsort(p_values)):
        running = max(running, min(1.0, (4 - rank) * p_values[index]))
        adjusted[int(index)] = running
    assert [row.equivalence_p for row in found] == pytest.approx(
        [adjusted[index] for index in range(4)]
    )
    assert [row.is_equivalent for row in found] == [True, True, False, False]


def test_for_losses_the_lowest_is_the_best(scores: np.ndarray) -> None:
    higher = compare_with_best(scores, margin=0.05)
    lower = compare_with_best(1 - scores, margin=0.05, higher_is_better=False)
    for left, right in zip(higher, lower, strict=True):
        assert (left.worse_p, left.equivalence_p) == pytest.approx(
            (right.worse_p, right.equivalence_p)
        )


def test_differences_without_variance_have_the_p_of_the_sign_flip_test() -> None:
    found = compare_with_best([[1.0] * 6, [0.5] * 6], margin=0.6)
    assert [row.worse_p for row in found] == [1.0, 0.5**6]
    assert [row.equivalence_p for row in found] == [2 * 0.5**6] * 2


@pytest.mark.parametrize(
    ("states", "reason"),
    [({}, ""), ({("rotary", 1): "DIVERGED"}, "not all variants are ranked")],
    ids=str,
)
def test_no_variant_is_best_while_one_is_not_ranked(analysed, states, reason) -> None:
    """The variant with a diverged seed could be the best."""
    means = {"sinusoidal": 0.6, "rotary": 0.9, "none": 0.1}
    found = analysed(
        axes={"positional": [*means]},
        score=lambda axes, seed: (
            means[axes["positional"]] + 0.001 * math.sin(7 * seed + len(axes["positional"]))
        ),
        states=states,
    ).best
    assert (bool(found.slugs), found.reason) == (not reason, reason)
