"""Power against simulated studies."""

import math

import numpy as np
import pytest
import scipy.stats

from headtohead_judge.block_model import expected_degrees
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.paired_tests import (
    EXAMPLES,
    SEEDS,
    Difference,
    Source,
    interval,
    level_of_each,
    paired_differences,
)
from headtohead_judge.power import (
    detectable_difference,
    minimum_detectable_effect,
    seeds_for_equivalence,
    seeds_needed,
)


@pytest.mark.parametrize(
    ("seeds", "contrasts", "effect"),
    [(6, 11, 2.50), (6, 142, 4.29), (3, 11, 10.72), (2, 3, 34.0), (12, 1, 0.889)],
)
def test_simulated_paired_tests_detect_the_minimum_detectable_effect_with_the_stated_power(
    seeds, contrasts, effect
):
    sd = 0.02
    level = level_of_each(contrasts)
    found = minimum_detectable_effect(sd, seeds, level=level)
    assert found / sd == pytest.approx(effect, rel=1e-2)
    draws = np.random.default_rng(7).normal(found, sd, size=(40_000, seeds))
    p = scipy.stats.ttest_1samp(draws, 0, axis=1).pvalue
    assert (p <= level).mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("variants", "seeds", "count"),
    [
        (3, 2, 2),
        (6, 3, 1),
        pytest.param(6, 3, 5, marks=pytest.mark.slow),
        pytest.param(12, 3, 11, marks=pytest.mark.slow),
        pytest.param(6, 6, 5, marks=pytest.mark.slow),
    ],
)
def test_a_study_detects_its_detectable_difference_with_the_stated_power(variants, seeds, count):
    generator = np.random.default_rng(3)
    level = level_of_each(count)
    degrees = expected_degrees(variants, seeds, count)
    effect = minimum_detectable_effect(math.sqrt(2), seeds, level=level, degrees=degrees)
    sides = tuple(Side(str(number), "loss") for number in range(variants))
    contrasts = []
    for side in sides[1 : 1 + count]:
        contrasts.append(Contrast(side.variant, "variant", ({side: 1.0, sides[0]: -1.0},)))
    studies = 700
    detected = 0
    for _ in range(studies):
        scores = generator.normal(size=(variants, seeds))
        scores[1] += effect
        rows = [dict(enumerate(row.tolist())) for row in scores]
        table = ScoreTable(dict(zip(sides, rows, strict=True)), (sides,))
        found = estimate_family(contrasts, table)[0].difference
        detected += interval(found, 1 - level).low > 0
    assert detected / studies == pytest.approx(0.8, abs=0.045)


def test_the_detectable_difference_of_several_sources_has_the_stated_power():
    generator = np.random.default_rng(4)
    variances, degrees = np.array([0.04, 0.09]), np.array([5, 24])
    sources = (Source(SEEDS, 0.04, 5), Source(EXAMPLES, 0.09, 24))
    effect = detectable_difference(Difference("varied", 6, 0.1, sources, math.nan, 1.0), 0.01)
    means = generator.normal(effect, math.sqrt(0.13), size=40_000)
    found = variances * generator.chisquare(degrees, size=(40_000, 2)) / degrees
    half = np.sqrt((found * scipy.stats.t.ppf(0.995, degrees) ** 2).sum(axis=1))
    assert (means > half).mean() == pytest.approx(0.8, abs=0.015)


def test_the_detectable_difference_of_seeds_alone_is_the_minimum_detectable_effect():
    d = paired_differences([0.1, 0.4, 0.2, 0.3])
    sd = np.std([0.1, 0.4, 0.2, 0.3], ddof=1)
    assert detectable_difference(d) == pytest.approx(minimum_detectable_effect(sd, 4))
    assert math.isnan(detectable_difference(paired_differences([0.5] * 6)))


@pytest.mark.parametrize(("margin", "level"), [(2.0, 0.05), (1.0, 0.01)])
def test_simulated_equal_variants_are_equivalent_with_the_stated_power(margin, level):
    seeds = seeds_for_equivalence(margin, level=level)
    within = []
    for n in (seeds - 1, seeds):
        draws = np.random.default_rng(5).normal(size=(20_000, n))
        error = draws.std(axis=1, ddof=1) / math.sqrt(n)
        half = scipy.stats.t.ppf(1 - level / 2, n - 1) * error
        within.append((np.abs(draws.mean(axis=1)) + half < margin).mean())
    assert within[0] < 0.8 <= within[1] + 0.008
    assert seeds_for_equivalence(1e-3) is None
    assert seeds_needed(margin, level=level) <= seeds
