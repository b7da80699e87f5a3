"""Combined settings against loops over the formulas of the papers, and their coverage in simulated questions."""

import math

import numpy as np
import pytest
from scipy import stats

from headtohead_judge.paired_tests import SEEDS, Difference, Source, paired_differences
from headtohead_judge.random_effects import combine

MEANS = [-0.031, -0.052, -0.018, -0.040, -0.012]
ERRORS = [0.004, 0.006, 0.005, 0.010, 0.003]


def settings(means: list[float], errors: list[float]) -> list[Difference]:
    found = []
    for mean, error in zip(means, errors, strict=True):
        found.append(Difference("varied", 6, mean, (Source(SEEDS, error**2, 5),), 0.0, 0.03))
    return found


def naive(means: list[float], errors: list[float]) -> tuple[float, ...]:
    """Return mean, error of Hartung and Knapp, and variance between settings, by loops."""
    fixed = [1 / error**2 for error in errors]
    fixed_mean = sum(w * y for w, y in zip(fixed, means, strict=True)) / sum(fixed)
    squares = sum(w * (y - fixed_mean) ** 2 for w, y in zip(fixed, means, strict=True))
    scale = sum(fixed) - sum(w**2 for w in fixed) / sum(fixed)
    between = max(0.0, (squares - (len(means) - 1)) / scale)
    weights = [1 / (error**2 + between) for error in errors]
    mean = sum(w * y for w, y in zip(weights, means, strict=True)) / sum(weights)
    spread = sum(w * (y - mean) ** 2 for w, y in zip(weights, means, strict=True))
    factor = max(1.0, spread / (len(means) - 1))
    return mean, math.sqrt(factor / sum(weights)), between


@pytest.mark.parametrize("means", [MEANS, [-0.030] * 5, [0.01, -0.01, 0.02, 0.0, 0.3]])
def test_mean_and_intervals_are_those_of_the_papers(means: list[float]) -> None:
    mean, error, between = naive(means, ERRORS)
    found = combine(settings(means, ERRORS))
    assert (found.settings, found.mean) == (5, pytest.approx(mean))
    assert found.between == pytest.approx(math.sqrt(between), abs=1e-12)
    half = stats.t.ppf(0.975, 4) * error
    assert (found.interval.low, found.interval.high) == pytest.approx((mean - half, mean + half))
    half = stats.t.ppf(0.975, 3) * math.sqrt(between + error**2)
    assert (found.prediction.low, found.prediction.high) == pytest.approx(
        (mean - half, mean + half)
    )


@pytest.mark.parametrize(("number", "between"), [(3, 1.0), (7, 0.0), (7, 1.0)])
def test_intervals_contain_the_mean_and_a_new_setting_in_nearly_95_percent_of_questions(
    number: int, between: float
) -> None:
    """Each setting has a mean over six seeds with an error of 0.5; the settings differ by ``between``.

    Prediction intervals are known to be too short for few settings that differ by about their errors.
    """
    generator = np.random.default_rng(number)
    questions = 1000
    covered = 0
    predicted = 0
    for _ in range(questions):
        true = generator.normal(0, between, size=number + 1)
        scores = generator.normal(true[:-1, None], 0.5 * math.sqrt(6), size=(number, 6))
        found = combine([paired_differences(row) for row in scores])
        covered += found.interval.low <= 0 <= found.interval.high
        predicted += found.prediction.low <= true[-1] <= found.prediction.high
    assert covered / questions >= 0.93
    assert predicted / questions >= 0.90


def test_fewer_than_three_settings_and_settings_without_variance_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 settings can be combined, got 2"):
        combine(settings(MEANS[:2], ERRORS[:2]))
    with pytest.raises(ValueError, match="without variance"):
        combine([*settings(MEANS[:3], ERRORS[:3]), paired_differences([0.5] * 6)])
