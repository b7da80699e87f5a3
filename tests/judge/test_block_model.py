"""Moderated variances: agreement with published code, and their limits."""

import math

import numpy as np
import pytest

from headtohead_judge.block_model import block_model, larger_deviations, prior_degrees
from headtohead_judge.paired_tests import paired

SPREAD = [0.1, 9.0, 0.4, 1.1, 3.2, 0.7, 14.0, 0.9]


@pytest.mark.parametrize(
    ("variances", "degrees", "expected"),
    [
        ([0.8, 1.9, 0.4, 1.1, 3.2, 0.7, 1.4, 0.9], 5, math.inf),
        (SPREAD, 5, 1.6556425274142945),
        (SPREAD, [5, 4, 5, 3, 5, 2, 5, 4], 1.8102836155175377),
    ],
)
def test_prior_degrees_equal_those_of_limma(
    variances: list[float], degrees: list[int] | int, expected: float
) -> None:
    # df2 of fitFDist(variances, degrees) in inmoose, the Python version of limma.
    assert prior_degrees(variances, degrees) == pytest.approx(expected, rel=1e-12)


def test_missing_scores_are_fitted_by_least_squares() -> None:
    scores = np.random.default_rng(3).normal(size=(5, 6))
    scores[[0, 0, 1, 4], [0, 3, 2, 5]] = math.nan
    scores[3, 1:] = math.nan  # a single score: the variant does not enter the model
    kept = np.delete(scores, 3, axis=0)
    row, column = np.nonzero(np.isfinite(kept))
    design = np.hstack([np.eye(4)[row], np.eye(6)[column]])
    _, _, rank, _ = np.linalg.lstsq(design, kept[row, column])
    fitted = design @ np.linalg.lstsq(design, kept[row, column])[0]
    model = block_model(scores)
    assert model is not None
    assert model.degrees == len(row) - rank
    assert model.residual_variance == pytest.approx(
        ((kept[row, column] - fitted) ** 2).sum() / model.degrees
    )


def test_two_variants_have_the_paired_t_test() -> None:
    scores = np.random.default_rng(0).normal(size=(2, 6))
    model, found = block_model(scores), paired(*scores)
    assert model is not None
    moderated = model.moderated(found, 2.0)
    assert moderated.p == pytest.approx(found.paired_p)
    assert moderated.degrees == 5


def test_two_noisy_variants_do_not_conceal_each_other() -> None:
    scores = np.random.default_rng(6).normal(size=(4, 8)) * [[1], [10], [1], [10]]
    ratios = scores.std(axis=1, ddof=1) / math.sqrt(scores[::2].var(axis=1, ddof=1).mean())
    assert larger_deviations(scores) == pytest.approx(ratios * [0, 1, 0, 1])


def test_variants_with_the_same_scores_enter_the_model_once() -> None:
    scores = np.random.default_rng(2).normal(size=(4, 6))
    assert block_model([*scores, scores[0]]) == block_model(scores)
    assert block_model([scores[0], scores[0]]) is None


def test_copies_with_rounding_errors_or_a_missing_score_enter_the_model_once() -> None:
    scores = np.random.default_rng(2).normal(size=(4, 6))
    scores[0, 2] = np.nan
    copies = scores[0] + 1e-15 * np.arange(3)[:, None]
    model, expected = block_model([*scores, *copies]), block_model(scores)
    assert model is not None
    assert expected is not None
    assert (model.degrees, model.prior) == (expected.degrees, pytest.approx(expected.prior))
    assert model.residual_variance == pytest.approx(expected.residual_variance)
