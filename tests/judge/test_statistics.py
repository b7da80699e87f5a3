import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead_judge import paired_tests as s
from headtohead_judge.unpaired import unpaired

scores = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))


def pairs(low: int = 2, high: int = 9):
    return st.lists(st.tuples(scores, scores), min_size=low, max_size=high)


def test_the_interval_of_a_mean_equals_the_textbook_formula():
    values = [0.91, 0.93, 0.90, 0.95, 0.92, 0.94]
    mean = sum(values) / 6
    sd = math.sqrt(sum((v - mean) ** 2 for v in values) / 5)
    found = s.summarise(values)
    assert (found.n, found.mean, found.sd) == pytest.approx((6, mean, sd))
    # 2.5706 is the printed two-sided 5 % point of t with 5 degrees of freedom
    assert found.high - found.mean == pytest.approx(2.5705818 * sd / math.sqrt(6), rel=1e-6)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_an_interval_is_clipped_to_the_range_of_the_metric_and_a_single_score_has_none():
    single = s.summarise([0.5])
    assert (single.mean, single.sd, single.low) == pytest.approx(
        (0.5, math.nan, math.nan), nan_ok=True
    )
    free = s.summarise([0.1, 0.2, 0.6])
    assert free.low < 0
    cut = s.summarise([0.1, 0.2, 0.6], span=(0.0, 1.0))
    assert (cut.low, cut.high, cut.mean) == (0.0, free.high, free.mean)
    assert s.summarise([0.99, 1.0, 0.9], span=(0.0, 1.0)).high == 1.0


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_paired_test_agrees_with_scipy(rows):
    left, right = np.array(rows).T
    found = s.paired(left, right)
    if found.kind != "varied":
        return
    oracle = scipy.stats.ttest_rel(left, right)
    interval = oracle.confidence_interval(0.95)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-6, abs=1e-12)
    assert found.paired_p == found.p
    ends = s.interval(found, 0.95)
    assert (ends.low, ends.high) == pytest.approx((interval.low, interval.high), abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.lists(scores, min_size=1, max_size=8) | st.lists(scores, min_size=13, max_size=13))
def test_sign_flip_p_is_the_fraction_of_sign_patterns_at_least_as_extreme(differences):
    observed = abs(sum(differences))
    slack = 1e-9 * max(1.0, sum(map(abs, differences)))
    hits = sum(
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True))) >= observed - slack
        for signs in itertools.product((-1, 1), repeat=len(differences))
    )
    assert s.sign_flip_p(differences) == pytest.approx(hits / 2 ** len(differences), abs=1e-12)


def test_sampled_sign_flips_are_deterministic_and_close_to_the_t_test():
    d = np.random.default_rng(3).normal(0.4, 1.0, size=30)
    assert s.sign_flip_p(d) == s.sign_flip_p(d)
    assert s.sign_flip_p(d) == pytest.approx(scipy.stats.ttest_1samp(d, 0).pvalue, abs=0.01)


def test_the_levels_of_a_family_together_are_five_per_cent():
    for tests in (1, 2, 11, 1000):
        level = s.level_of_each(tests)
        assert (1 - level) ** tests == pytest.approx(0.95, rel=1e-12)
        assert s.adjusted_for(tests, level) == pytest.approx(0.05, rel=1e-12)
    assert s.adjusted_for(5, 1.0) == 1.0
    assert math.isnan(s.adjusted_for(5, math.nan))


SEVERAL = (
    s.Source(s.SEEDS, 0.04, 5),
    s.Source(s.EXAMPLES, 0.09, 24),
    s.Source(s.SELECTION, 0.01, 2.5),
)


def several(mean: float) -> s.Difference:
    return s.Difference("varied", 6, mean, SEVERAL, math.nan, 0.03125)


WITH_DECIMALS = tuple(
    s.Difference("varied", 6, 0.0, (s.Source(s.SEEDS, 0.04, 5), s.Decimals.of(2 * bias)), 0.1, 0.03)
    for bias in (1e-9, 0.05, 0.1, 1.0)
)


@pytest.mark.parametrize("difference", WITH_DECIMALS)
@pytest.mark.parametrize("mean", [0.0, 0.3, -0.5, 1.5, 80.0])
def test_p_is_the_level_at_which_an_interval_with_decimals_ends_at_zero(difference, mean):
    found = dataclasses.replace(difference, mean=mean)
    ends = s.interval(found, 1 - found.p)
    assert min(abs(ends.low), abs(ends.high)) == pytest.approx(0, abs=1e-4 * abs(mean))


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_the_squared_half_widths_of_the_sources_add_up(confidence):
    quantiles = scipy.stats.t.ppf((1 + confidence) / 2, [5, 24, 2.5])
    half = math.sqrt(sum(quantiles**2 * [0.04, 0.09, 0.01]))
    found = s.interval(several(0.3), confidence)
    assert (found.low, found.high) == pytest.approx((0.3 - half, 0.3 + half), rel=1e-9)


@pytest.mark.parametrize("mean", [1e-3, -0.4, 1.5, 80.0])
def test_the_interval_at_the_level_of_p_ends_at_zero(mean):
    found = several(mean)
    ends = s.interval(found, 1 - found.p)
    assert min(abs(ends.low), abs(ends.high)) == pytest.approx(0, abs=1e-4 * abs(mean))
    assert found.error == pytest.approx(math.sqrt(0.14))


def test_a_mean_of_zero_has_a_p_of_one_and_a_huge_mean_a_p_of_nearly_zero():
    assert several(0.0).p == 1.0
    assert 0 <= several(1e200).p < 1e-100


def test_a_source_without_variance_changes_neither_interval_nor_p():
    one = s.paired_differences([0.1, 0.3, 0.2, 0.4])
    more = one.with_source(s.Source(s.EXAMPLES, 0.0, 30))
    assert more.p == one.p
    assert s.interval(more, 0.9) == s.interval(one, 0.9)


def test_the_interval_covers_the_truth_in_ninety_five_per_cent_of_studies():
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(2000):
        shared = generator.normal(0, 3, size=4)
        left = shared + 0.5 + generator.normal(0, 1, size=4)
        found = s.paired(left, shared + generator.normal(0, 1, size=4))
        ends = s.interval(found, 0.95)
        covered += ends.low <= 0.5 <= ends.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("values", "against", "kind", "mean", "p"),
    [
        ([0.9, 0.8, 0.7], [0.9, 0.8, 0.7], "identical", 0.0, 1.0),
        ([0.1 + 0.2, 0.7, 0.6], [0.3, 0.7, 0.6], "identical", 0.0, 1.0),  # equal up to rounding
        ([1.0] * 6, [0.5] * 6, "constant", 0.5, 2 / 64),
        ([0.9], [0.8], "single", 0.1, math.nan),
    ],
)
def test_differences_without_variance_are_tested_by_signs(values, against, kind, mean, p):
    found = s.paired(values, against)
    assert (found.kind, found.mean) == (kind, pytest.approx(mean))
    assert (found.p, found.sign_flip_p) == pytest.approx((p, p), nan_ok=True)
    if kind == "constant":
        assert s.interval(found, 0.95) == s.Interval(mean, mean)


SINGLE = np.float32
DOUBLE = np.float64
HIGH = np.array([78.7, 80.2, 79.9, 81.2, 82.1, 79.0])
THIRDS = np.array([1, 2, 4, 5, 3, 2]) / 7


@pytest.mark.parametrize("compare", [s.paired, unpaired])
@pytest.mark.parametrize("precision", [SINGLE, DOUBLE])
@pytest.mark.parametrize(
    ("values", "against", "kind"),
    [
        (HIGH + 0.2, HIGH, "constant"),
        (THIRDS + 1 / 7, THIRDS, "constant"),
        (THIRDS * 3 / 3, THIRDS, "identical"),
        (THIRDS + 0.001 * np.eye(6)[0], THIRDS, "varied"),
    ],
)
def test_the_same_difference_is_recognised_in_single_precision(
    compare, precision, values, against, kind
):
    found = compare(values.astype(precision), against.astype(precision))
    exact = compare(values, against)
    if compare is s.paired:
        assert found.kind == kind
    assert found.sign_flip_p == exact.sign_flip_p
    assert found.p == pytest.approx(exact.p, rel=1e-3)


def test_scores_of_both_precisions_are_not_of_single_precision():
    differences = s.paired([0.5 + 1e-7, 0.25], [0.5, 0.25])
    assert differences.kind == "varied"


def test_effect_size_is_the_mean_over_the_sd_with_hedges_correction():
    d = np.array([0.1, 0.3, 0.2, 0.5, 0.4, 0.3])
    found = s.paired_differences(d)
    # 0.8408 is the exact correction for 5 degrees of freedom (Hedges 1981, table 1)
    assert found.effect == pytest.approx(0.8408 * d.mean() / d.std(ddof=1), rel=1e-4)


def test_non_finite_scores_are_refused_in_a_comparison():
    with pytest.raises(ValueError, match="finite"):
        s.paired([1.0, math.nan], [1.0, 2.0])


def test_a_constant_difference_has_the_larger_p_of_its_signs_and_its_examples():
    constant = s.paired_differences([0.5] * 6)
    few_examples = constant.with_source(s.Source(s.EXAMPLES, 0.25, 24))
    assert constant.p == 2 / 64
    assert few_examples.p == pytest.approx(2 * scipy.stats.t.sf(1.0, 24))
