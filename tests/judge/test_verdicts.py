"""Verdicts of a family against scipy's t-tests with Holm's procedure as loops."""

import math

import numpy as np
import pytest
import scipy.stats

from headtohead_judge.paired_tests import holm, paired_differences
from headtohead_judge.verdicts import judge

MARGIN = 0.5


def holm_rejects(p_values, alpha=0.05):
    """Return which tests Holm's step-down procedure rejects."""
    rejected = [False] * len(p_values)
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] > alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


@pytest.mark.parametrize("seed", range(8))
def test_verdicts_equal_scipys_tests_with_holms_procedure(seed):
    generator = np.random.default_rng(seed)
    effects = generator.choice([0.0, 0.3, 1.5], size=5)
    d = generator.normal(effects[:, None], generator.uniform(0.1, 0.6), size=(5, 6))
    p = scipy.stats.ttest_1samp(d, 0, axis=1).pvalue
    below = scipy.stats.ttest_1samp(d, MARGIN, axis=1, alternative="less").pvalue
    above = scipy.stats.ttest_1samp(d, -MARGIN, axis=1, alternative="greater").pvalue
    significant, equivalent = holm_rejects(p), holm_rejects(np.maximum(below, above))
    expected = [
        ("better" if row.mean() > 0 else "worse") if different else "undetected"
        for row, different in zip(d, significant, strict=True)
    ]
    found = judge([paired_differences(row) for row in d], margin=MARGIN)
    assert [judgement.direction for judgement in found] == expected
    assert [judgement.size == "within" for judgement in found] == equivalent
    for judgement, different, same in zip(found, significant, equivalent, strict=True):
        step, within = judgement.interval, judgement.size_test.interval
        assert (step.low > 0 or step.high < 0) == different
        assert (within.low > -MARGIN and within.high < MARGIN) == same
        assert (within.low >= MARGIN or within.high <= -MARGIN) == (judgement.size == "beyond")


def test_all_verdicts_occur():
    rows = {
        "identical": [0.0] * 6,
        "better, within": [0.01, 0.02, 0.01, 0.02, 0.01, 0.02],
        "better, beyond": [1.0, 1.1, 0.9, 1.0, 1.2, 0.8],
        "worse, beyond": [-1.0, -1.1, -0.9, -1.0, -1.2, -0.8],
        "worse, unclear": [-0.3, -0.5, -0.9, -0.2, -0.9, -0.6],
        "undetected, within": [0.01, -0.02, 0.02, -0.01, 0.01, -0.02],
        "undetected, unclear": [1.0, -1.0, 2.0, -2.0, 1.0, 0.5],
        "no verdict": [3.0],
    }
    found = judge([None, *(paired_differences(row) for row in rows.values())], margin=MARGIN)
    assert [judgement.verdict for judgement in found] == ["no verdict", *rows]
    lower = judge([paired_differences(rows["better, beyond"])], higher_is_better=False)
    assert lower[0].verdict == "worse"


def test_a_test_that_is_not_rejected_has_the_level_of_the_step_at_which_holm_stops():
    assert holm([0.04, 0.001, math.nan, 0.03, 0.9])[1] == pytest.approx(
        [0.05 / 3, 0.05 / 4, math.nan, 0.05 / 3, 0.05 / 3], nan_ok=True
    )


def test_a_constant_difference_has_an_interval_only_with_enough_seeds_for_a_verdict():
    few, enough = (judge([paired_differences([0.125] * seeds)])[0] for seeds in (4, 6))
    assert (few.verdict, few.interval) == ("no verdict", None)
    sized = [
        judge([paired_differences([0.125] * seeds)], margin=margin)[0]
        for seeds, margin in ((2, 0.1), (5, 0.2))
    ]
    assert [judgement.verdict for judgement in sized] == ["no verdict", "undetected, within"]
    assert enough.verdict == "better"
    assert (enough.interval.low, enough.interval.high) == (0.125, 0.125)
