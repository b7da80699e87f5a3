"""Copied runs: how often studies without copies have a warning, how often copies have one, and what a step is."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from headtohead_judge.copies import (
    Run,
    chance_equal,
    copy_warnings,
    equal_curves,
    is_same_variant,
    step_of,
)

Floats = NDArray[np.float64]
Metric = Callable[[Floats], Floats]
STUDIES = 60
SEEDS = 6


def of_examples(examples: int, digits: int = 12) -> Metric:
    return lambda x: np.round(np.rint(x * examples) / examples, digits)


def rounded(digits: int) -> Metric:
    return lambda x: np.round(x, digits)


METRICS: dict[str, Metric] = {
    "steps of 0.005": of_examples(200),
    "steps of 0.005 in single precision": lambda x: (
        of_examples(200)(x).astype(np.float32).astype(np.float64)
    ),
    "1,319 examples, four digits": of_examples(1319, 4),
    "four digits": rounded(4),
    "six digits": rounded(6),
    "all digits": rounded(15),
}


def studies(metric: Metric, seeds: int = SEEDS) -> list[Floats]:
    """Return scores ``[variant, seed]`` of independent runs with a standard deviation of 0.01."""
    generator = np.random.default_rng(0)
    return [metric(generator.normal(0.8, 0.01, size=(2, seeds))) for _ in range(STUDIES)]


def has_warning(scores: Floats, is_paired: bool = True) -> bool:
    by_variant = {
        name: {str(seed): value for seed, value in enumerate(row)}
        for name, row in zip(("base", "new"), scores.tolist(), strict=True)
    }
    return bool(
        copy_warnings(by_variant, {}, baseline="base", metric="accuracy", is_paired=is_paired)
    )


@pytest.mark.parametrize("is_paired", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", METRICS)
def test_at_most_1_in_60_studies_without_copies_has_a_warning(name: str, is_paired: bool) -> None:
    for seeds in (3, SEEDS, 20):
        assert sum(has_warning(scores, is_paired) for scores in studies(METRICS[name], seeds)) <= 1


def test_runs_that_fail_with_the_same_score_are_no_copies() -> None:
    # Half of the runs have the frequency of the most frequent answer, or a score close to it.
    failed = np.random.default_rng(1).random((STUDIES, 2, SEEDS)) < 0.5
    for name in ("steps of 0.005", "1,319 examples, four digits"):
        plateau = METRICS[name](
            np.random.default_rng(2).normal(0.12, 0.001, size=(STUDIES, 2, SEEDS))
        )
        mixed = np.where(failed, plateau, studies(METRICS[name]))
        assert sum(map(has_warning, mixed)) <= 0.1 * STUDIES
    solved = np.where(failed, 1.0, studies(METRICS["all digits"]))
    assert not any(map(has_warning, solved))


@pytest.mark.parametrize(("name", "least"), [("six digits", 0.75), ("all digits", 0.95)])
def test_most_copies_have_a_warning_if_scores_have_six_digits(name: str, least: float) -> None:
    copies: dict[str, Callable[[Floats], None]] = {
        "a run under a second seed": lambda x: x[1].__setitem__(0, x[1, 1]),
        "a run of the other variant": lambda x: x[1].__setitem__(0, x[0, 3]),
        "a run of the other variant under the same seed": lambda x: x[1].__setitem__(0, x[0, 0]),
        "all runs of a variant": lambda x: x[1].__setitem__(slice(None), x[1, 0]),
    }
    for copy in copies.values():
        changed = studies(METRICS[name])
        for scores in changed:
            copy(scores)
        assert sum(map(has_warning, changed)) >= least * STUDIES


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.8, 0.805, 0.82, 0.835, 0.79], 0.005),
        ([241 / 300, 250 / 300, 233 / 300, 199 / 300], 1 / 300),
        ([80.33, 81.0, 79.67, 78.33, 82.67, 80.67], 1 / 3),  # percentages of 300 examples
        (
            [round(k / 1319, 4) for k in (1000, 1017, 1003, 998, 1101, 1047, 1066, 1089, 911, 950)],
            1 / 1319,
        ),
        ([410.0, 420.0, 470.0, 300.0], 10),
        ([25.0, 75.0, 50.0, 125.0], 25),
        ([3.2761, 3.2804, 3.2769, 3.2777, 3.2748, 3.2791, 3.2783], 1e-4),
        ([1e-55, 3e-55, 8e-55], 1e-55),
    ],
)
def test_the_step_is_that_of_the_grid_of_the_values(values: list[float], step: float) -> None:
    assert step_of(values) == pytest.approx(step, abs=0)


@pytest.mark.parametrize("deviation", [1e-5, 0.2, 1.0, 3.0, 5000.0])
def test_the_chance_of_equal_scores_is_the_mean_overlap_of_two_steps(deviation: float) -> None:
    d = np.linspace(-1, 1, 400_001)
    density = np.exp(-((d / deviation) ** 2) / 2) / (deviation * math.sqrt(2 * math.pi))
    expected = 1.0 if deviation < 1e-4 else np.trapezoid((1 - np.abs(d)) * density, d)
    assert chance_equal(deviation, 1.0) == pytest.approx(expected, rel=1e-3)


def test_equal_curves_are_copies_unless_they_have_only_the_ends_of_the_scale() -> None:
    curves = {
        Run("a", "1"): {1.0: 0.0, 2.0: 1.0},
        Run("a", "2"): {1.0: 0.0, 2.0: 1.0},
        Run("a", "3"): {1.0: 0.5, 2.0: 1.0},
        Run("b", "9"): {2.0: 1.0, 1.0: 0.5},
        Run("b", "4"): {1.0: 0.5, 3.0: 1.0},
    }
    assert equal_curves(curves) == [(Run("a", "3"), Run("b", "9"))]


def test_the_same_scores_are_the_same_variant_whatever_its_seeds_are_called() -> None:
    scores = dict(zip("123456", studies(METRICS["all digits"])[0][0].tolist(), strict=True))
    renamed = {f"1{seed}": score for seed, score in scores.items()}
    more = renamed | {f"2{seed}": score + 0.01 for seed, score in scores.items()}
    changed = renamed | {"11": 0.7, "12": 0.6}
    fewer_digits = {seed: round(score, 5) for seed, score in renamed.items()}
    for other in (scores, renamed, more, changed, fewer_digits, dict([*renamed.items()][:3])):
        assert is_same_variant(scores, other, 0.01)
        assert is_same_variant(other, scores, 0.01)
    coarse = [METRICS["steps of 0.005"](own) for own in studies(METRICS["all digits"])]
    for first, second in coarse:
        sides = (dict(zip("123456", side.tolist(), strict=True)) for side in (first, second))
        assert not is_same_variant(*sides, 0.01)
    one_run = {"7": scores["1"], **{f"3{seed}": score + 0.003 for seed, score in scores.items()}}
    assert not is_same_variant(scores, one_run, 0.01)
