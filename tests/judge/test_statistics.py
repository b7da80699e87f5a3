import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead_judge import paired_tests as s

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
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.lists(scores, min_size=1, max_size=8))
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


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), max_size=10))
def test_holm_agrees_with_its_definition(p_values):
    finite = sorted(p for p in p_values if not math.isnan(p))
    expected = []
    for p in p_values:
        if math.isnan(p):
            expected.append(math.nan)
            continue
        steps = [(len(finite) - rank) * q for rank, q in enumerate(finite) if q <= p]
        expected.append(min(1.0, max(steps)))
    assert s.holm(p_values)[0] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("seeds", "contrasts", "effect"),
    [(6, 11, 2.51), (6, 142, 4.30), (3, 11, 10.86), (2, 3, 34.6), (12, 1, 0.889)],
)
def test_simulated_studies_detect_the_minimum_detectable_effect_with_the_stated_power(
    seeds, contrasts, effect
):
    sd = 0.02
    found = s.minimum_detectable_effect(sd, seeds, level=s.ALPHA / contrasts)
    assert found / sd == pytest.approx(effect, rel=2e-3)
    draws = np.random.default_rng(7).normal(found, sd, size=(40_000, seeds))
    p = scipy.stats.ttest_1samp(draws, 0, axis=1).pvalue
    assert (p <= 0.05 / contrasts).mean() == pytest.approx(0.8, abs=0.01)


def test_the_interval_covers_the_truth_in_ninety_five_per_cent_of_studies():
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(2000):
        shared = generator.normal(0, 3, size=4)
        left = shared + 0.5 + generator.normal(0, 1, size=4)
        found = s.paired(left, shared + generator.normal(0, 1, size=4))
        covered += found.low <= 0.5 <= found.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_holm_keeps_the_family_wise_error_rate_below_five_per_cent():
    generator = np.random.default_rng(13)
    false = 0
    for _ in range(1000):
        baseline = generator.normal(0, 1, size=6)
        p = [s.paired(generator.normal(0, 1, size=6), baseline).p for _ in range(5)]
        false += min(s.holm(p)[0]) <= 0.05
    assert false / 1000 <= 0.05 + 0.014


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
    assert kind != "constant" or found.low == found.high == mean


def test_effect_size_is_the_mean_over_the_sd_with_hedges_correction():
    d = np.array([0.1, 0.3, 0.2, 0.5, 0.4, 0.3])
    found = s.paired_differences(d)
    # 0.8408 is the exact correction for 5 degrees of freedom (Hedges 1981, table 1)
    assert found.effect == pytest.approx(0.8408 * d.mean() / d.std(ddof=1), rel=1e-4)


def test_non_finite_scores_are_refused_in_a_comparison():
    with pytest.raises(ValueError, match="finite"):
        s.paired([1.0, math.nan], [1.0, 2.0])


@settings(max_examples=60, deadline=None)
@given(pairs(3, 8), st.floats(0.01, 50))
def test_equivalence_holds_if_and_only_if_its_interval_lies_within_the_margin(rows, margin):
    left, right = np.array(rows).T
    found = s.paired_differences(np.subtract(left, right))
    if found.kind != "varied":
        return
    p = s.equivalence_p(found, margin)
    within = s.interval(found, 0.90)
    inside = -margin < within.low and within.high < margin
    edge = min(abs(within.low + margin), abs(within.high - margin)) < 1e-9
    assert (p <= 0.05) == inside or edge
    tests = [
        scipy.stats.ttest_1samp(left - right, -margin, alternative="greater").pvalue,
        scipy.stats.ttest_1samp(left - right, margin, alternative="less").pvalue,
    ]
    assert p == pytest.approx(max(tests), abs=1e-9)


def test_equal_scores_need_five_seeds_to_be_called_equivalent():
    assert s.equivalence_p(s.paired([0.5] * 4, [0.5] * 4), 0.01) > 0.05
    assert s.equivalence_p(s.paired([0.5] * 5, [0.5] * 5), 0.01) <= 0.05
