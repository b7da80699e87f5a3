"""Effects at the largest size: predictions of made scores, their intervals, and studies without any."""

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.size_prediction import size_predictions, weights_of_line
from headtohead.report.content import Report
from headtohead.report.sizes import prediction_section
from made import case_table

SIZES = ["d_model 16", "d_model 32", "d_model 64", "d_model 128"]
EFFECTS = {"rotary": [0.10, 0.08, 0.06, 0.04], "none": [-0.05, -0.05, -0.05, -0.20]}
"""The effect of each encoding at each size: on a line, and on none."""


def score_with(noise):
    """Return scores with these effects; ``noise[encoding, size]`` is added times the seed minus its mean."""

    def score(axes, seed):
        size = SIZES.index(axes["size"])
        encoding = axes["positional"]
        effect = EFFECTS.get(encoding, [0.0] * 4)[size]
        return 0.5 + effect + noise.get((encoding, size), 0.0) * (seed % 3 - 1)

    return score


@pytest.fixture
def predicted(analysed):
    """Return a function that returns the analysis of a study of three encodings at these sizes."""

    def analysis(score, sizes=SIZES, **study):
        axes = {"positional": ["sinusoidal", "rotary", "none"], "size": sizes}
        return analysed(axes=axes, score=score, question="Which encoding?", **study)

    return analysis


def test_a_line_predicts_effects_on_a_line_and_misses_others(predicted):
    noise = {("rotary", 3): 0.01, ("none", 1): 0.01, ("sinusoidal", 0): 0.002}
    found = size_predictions(predicted(score_with(noise)))
    assert found.sizes == tuple(SIZES)
    assert [change.name for change in found.changes] == [
        "rotary instead of sinusoidal",
        "without positions",
    ]
    rotary, none = found.changes
    assert (rotary.measured, none.measured) == pytest.approx((0.04, -0.20), abs=1e-6)
    predictions = [change.by_line.effect for change in found.changes]
    assert predictions == pytest.approx([0.04, -0.05], abs=1e-6)
    assert rotary.by_line.error == pytest.approx(0, abs=1e-6)
    same_effects = [change.by_same_effect.effect for change in found.changes]
    assert same_effects == pytest.approx([0.06, -0.05], abs=1e-6)
    assert none.by_line.error == none.by_same_effect.error == pytest.approx(-0.15, abs=1e-6)
    assert rotary.by_line.is_right
    assert not none.by_line.is_right


@pytest.mark.slow
def test_the_interval_contains_new_effects_in_95_percent_of_studies(predicted):
    """Over many draws of noise, the intervals of effects that do follow a line contain them at their level."""
    draws = np.random.default_rng(4).normal(scale=0.01, size=(20, 3, 4, 7))
    encodings = ["sinusoidal", "rotary", "none"]
    right = 0
    for draw in draws:

        def score(axes, seed, draw=draw):
            size = SIZES.index(axes["size"])
            encoding = encodings.index(axes["positional"])
            return float(0.5 + 0.02 * size * encoding + draw[encoding, size, seed])

        found = size_predictions(predicted(score))
        right += sum(change.by_line.is_right for change in found.changes)
    low, high = stats.binom.interval(0.999, 2 * len(draws), 0.95)
    assert low <= right <= high


@case_table(
    ("study", "has_predictions"),
    [
        ({}, True),
        ({"sizes": SIZES[:2]}, False),
        ({"states": {("sinusoidal-d_model 32", 3): "FAILED"}}, False),
        ({"seeds": (1, 2)}, False),
    ],
    default=4,
)
def test_predictions_need_three_sizes_the_baseline_at_each_and_three_seeds(
    study, has_predictions, predicted
):
    analysis = predicted(score_with({("rotary", 1): 0.01}), **study)
    assert (size_predictions(analysis) is not None) == has_predictions


def test_sizes_with_equal_parameters_have_no_line(predicted):
    analysis = predicted(score_with({}), same_parameters=True)
    assert size_predictions(analysis) is None


def test_the_weights_are_those_of_the_line_of_least_squares():
    positions = [1.0, 2.5, 3.0, 7.0]
    values = np.array([0.3, -0.2, 0.9])
    line = np.polynomial.Polynomial.fit(positions[:3], values, deg=1)
    assert values @ weights_of_line(positions) == pytest.approx(line(7.0))


def test_the_section_has_both_predictions_and_counts_the_missed(predicted):
    noise = {("rotary", 3): 0.01, ("none", 1): 0.01, ("sinusoidal", 0): 0.002}
    section = prediction_section(Report(predicted(score_with(noise))))
    assert list(section.frame.columns) == [
        "change",
        "at d_model 128",
        "by a line",
        "as at d_model 64",
    ]
    rotary, none = section.frame.to_dict("records")
    assert rotary["at d_model 128"] == "+0.040"
    assert none["by a line"].startswith("−0.050\n")
    assert none["by a line"].endswith("\nmissed")
    assert "By the line: 1 of 2 effects inside" in section.text
