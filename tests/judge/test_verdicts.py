"""Verdicts of a family, against scipy's intervals at the level of Sidak."""

import math

import numpy as np
import pytest
import scipy.stats

from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import EXAMPLES, Source, paired_differences
from headtohead_judge.verdicts import judge

MARGIN = 0.5


def words(low: float, high: float) -> str:
    """Return the verdict of an interval by the table of the page on statistics."""
    if low > 0 or high < 0:
        direction = "better" if low > 0 else "worse"
        if low >= MARGIN or high <= -MARGIN:
            return f"{direction} by more than the margin"
        if low > -MARGIN and high < MARGIN:
            return f"{direction} by less than the margin"
        return direction
    return "equivalent" if low > -MARGIN and high < MARGIN else "no difference shown"


@pytest.mark.parametrize("seed", range(8))
def test_every_word_is_read_off_the_interval_of_scipy_at_the_level_of_sidak(seed):
    generator = np.random.default_rng(seed)
    effects = generator.choice([0.0, 0.3, 1.5], size=5)
    d = generator.normal(effects[:, None], generator.uniform(0.1, 0.6), size=(5, 6))
    found = judge([paired_differences(row) for row in d], margin=MARGIN)
    for row, judgement in zip(d, found, strict=True):
        oracle = scipy.stats.ttest_1samp(row, 0)
        low, high = oracle.confidence_interval(0.95 ** (1 / 5))
        ends = judgement.interval
        assert (ends.low, ends.high) == pytest.approx((low, high))
        assert judgement.verdict == words(low, high)
        assert judgement.adjusted_p == pytest.approx(1 - (1 - oracle.pvalue) ** 5)
        assert judgement.largest_possible == pytest.approx(max(abs(low), abs(high)))
        assert (judgement.adjusted_p <= 0.05) == (low > 0 or high < 0)


ROWS = {
    "identical": [0.0] * 6,
    "better by less than the margin": [0.01, 0.02, 0.01, 0.02, 0.01, 0.02],
    "better by more than the margin": [1.0, 1.1, 0.9, 1.0, 1.2, 0.8],
    "worse by more than the margin": [-1.0, -1.1, -0.9, -1.0, -1.2, -0.8],
    "worse": [-0.3, -0.5, -0.9, -0.4, -0.9, -0.6],
    "equivalent": [0.01, -0.02, 0.02, -0.01, 0.01, -0.02],
    "no difference shown": [1.0, -1.0, 2.0, -2.0, 1.0, 0.5],
    "no verdict": [3.0],
}


def test_all_verdicts_occur():
    found = judge([None, *(paired_differences(row) for row in ROWS.values())], margin=MARGIN)
    assert [judgement.verdict for judgement in found] == ["no verdict", *ROWS]
    lower = judge(
        [paired_differences(ROWS["better by more than the margin"])], higher_is_better=False
    )
    assert lower[0].verdict == "worse"
    neither = judge([paired_differences(ROWS["worse"])], higher_is_better=None)
    assert neither[0].verdict == "smaller"


def test_identical_and_untested_contrasts_are_not_counted():
    tested = [paired_differences(ROWS["worse"]), paired_differences(ROWS["equivalent"])]
    others = [None, paired_differences(ROWS["identical"]), paired_differences(ROWS["no verdict"])]
    assert judge(tested, margin=MARGIN) == judge([*tested, *others], margin=MARGIN)[:2]
    assert judge(tested, margin=MARGIN) != judge(tested[:1] * 3, margin=MARGIN)[:2]


def test_exchanged_sides_have_the_mirrored_judgement():
    family = [paired_differences(row) for row in ROWS.values()]
    mirrored = [paired_differences(np.negative(row)) for row in ROWS.values()]
    for found, exchanged in zip(
        judge(family, margin=MARGIN), judge(mirrored, margin=MARGIN), strict=True
    ):
        assert found.signed(-1.0) == exchanged
        assert found.signed(1.0) is found


def test_a_constant_difference_has_a_verdict_only_with_enough_seeds_for_its_signs():
    few, enough = (judge([paired_differences([0.125] * seeds)])[0] for seeds in (5, 6))
    assert (few.verdict, few.interval) == ("no verdict", None)
    assert math.isnan(few.largest_possible)
    assert enough.verdict == "better"
    assert (enough.interval.low, enough.interval.high) == (0.125, 0.125)
    in_family = judge([paired_differences([0.125] * 6)] * 2)
    assert [judgement.verdict for judgement in in_family] == ["no verdict"] * 2
    within = judge([paired_differences([0.125] * 6)], margin=0.2)
    assert within[0].verdict == "better by less than the margin"


def test_a_constant_difference_is_as_uncertain_as_its_examples():
    constant = paired_differences([0.125] * 6)
    (found,) = judge([constant.with_source(Source(EXAMPLES, 0.01, 24))])
    assert found.verdict == "no difference shown"
    half = scipy.stats.t.ppf(0.975, 24) * 0.1
    assert found.interval.high == pytest.approx(0.125 + half)


def test_looks_replace_five_per_cent_by_their_nominal_level():
    looks = Looks.planned(4, 20)
    d = np.random.default_rng(5).normal(0.9, 1.0, size=(3, 10))
    found = judge([paired_differences(row) for row in d], looks=looks)
    level = looks.level(1 - 0.95 ** (1 / 3))
    assert level < 0.0169 < 1 - 0.95 ** (1 / 3) + 1e-4
    for row, judgement in zip(d, found, strict=True):
        low, high = scipy.stats.ttest_1samp(row, 0).confidence_interval(1 - level)
        assert (judgement.interval.low, judgement.interval.high) == pytest.approx((low, high))
        assert (judgement.adjusted_p <= 0.05) == (low > 0 or high < 0)


def test_acceptance_is_by_direction_or_by_the_whole_verdict():
    family = [paired_differences(row) for row in ROWS.values()]
    by_verdict = {found.verdict: found for found in judge(family, margin=MARGIN)}
    more = by_verdict["better by more than the margin"]
    assert more.exit_code(["better"]) == more.exit_code(["better by more than the margin"]) == 0
    assert more.exit_code(["better by less than the margin"]) == 3
    assert by_verdict["worse"].exit_code(["better"]) == 1
    assert by_verdict["equivalent"].exit_code(["better"]) == 3
    assert by_verdict["equivalent"].exit_code(["better", "equivalent"]) == 0
