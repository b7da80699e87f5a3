"""Effects at the largest size: predictions of made scores, their intervals, and studies without any."""

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.size_prediction import _error, size_predictions, weights_of_line
from headtohead.report.content import Report
from headtohead.report.sizes import prediction_section
from headtohead_judge.contrast import ScoreTable, Side
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import CONFIDENCE, interval
from made import case_table

SIZES = ["d_model 16", "d_model 32", "d_model 64", "d_model 128"]
EFFECTS = {"rotary": [0.10, 0.08, 0.06, 0.04], "none": [-0.05, -0.05, -0.05, -0.20]}
"""The effect of each encoding at each size: on a line, and on none."""


ENCODINGS = ["sinusoidal", "rotary", "none"]


def offset(encoding, size, seed):
    """Return the noise of a score; over six seeds, its mean is 0."""
    return 0.001 * 2**size * (1 + ENCODINGS.index(encoding)) * (seed % 3 - 1)


def score(axes, seed):
    """Return a score with the effect of its encoding at its size, and noise."""
    size = SIZES.index(axes["size"])
    encoding = axes["positional"]
    return 0.5 + EFFECTS.get(encoding, [0.0] * 4)[size] + offset(encoding, size, seed)


def score_without_noise(axes, seed):
    """Return the same without noise."""
    size = SIZES.index(axes["size"])
    return score(axes, seed) - offset(axes["positional"], size, seed)


@pytest.fixture
def predicted(analysed):
    """Return a function that returns the analysis of a study of three encodings at these sizes."""

    def analysis(sizes=SIZES, **study):
        axes = {"positional": ENCODINGS, "size": sizes}
        return analysed(**{"axes": axes, "score": score, "question": "Which encoding?"} | study)

    return analysis


def test_a_line_predicts_effects_on_a_line_and_misses_others(predicted):
    found = size_predictions(predicted())
    assert found.sizes == tuple(SIZES)
    assert [change.name for change in found.changes] == [
        "rotary instead of sinusoidal",
        "without positions",
    ]
    rotary, none = found.changes
    assert (rotary.measured, none.measured) == pytest.approx((0.04, -0.20), abs=1e-6)
    predictions = [change.by_line.effect for change in found.changes]
    assert predictions == pytest.approx([0.04, -0.05], abs=1e-6)
    assert rotary.by_line.error.mean == pytest.approx(0, abs=1e-6)
    same_effects = [change.by_same_effect.effect for change in found.changes]
    assert same_effects == pytest.approx([0.06, -0.05], abs=1e-6)
    errors = [prediction.error.mean for prediction in none.predictions]
    assert errors == pytest.approx([-0.15, -0.15], abs=1e-6)
    assert not rotary.by_line.is_missed
    assert none.by_line.is_missed


def test_the_interval_contains_the_effects_of_95_percent_of_studies():
    """The effects of made scores follow a line; half or twice the width of the interval fails the test."""
    generator = np.random.default_rng(4)
    positions = np.array([0.0, 1.0, 2.0, 3.0])
    weights = weights_of_line(positions)
    studies = 400
    right = {0.5: 0, 1.0: 0, 2.0: 0}
    for _ in range(studies):
        noise = generator.normal(scale=0.01, size=(2, 4, 6))
        variants = 0.5 + 0.02 * positions[:, None] + noise[0]
        rows = [*variants, *noise[1]]
        sides = [Side(str(number), "score") for number in range(8)]
        scores = {
            side: dict(enumerate(row.tolist())) for side, row in zip(sides, rows, strict=True)
        }
        blocks = tuple((sides[size], sides[size + 4]) for size in range(4))
        error = _error(ScoreTable(scores, blocks), sides, weights)
        half_width = interval(error, CONFIDENCE).high - error.mean
        for factor in right:
            right[factor] += abs(error.mean) <= factor * half_width
    low, high = stats.binom.interval(0.9999, studies, 0.95)
    assert low <= right[1.0] <= high
    assert right[0.5] < low
    assert right[2.0] > high


def test_all_parts_of_a_prediction_rest_on_the_seeds_that_all_runs_share(predicted):
    """A run without a result leaves its seed out at every size, so the line is that of the other seeds."""
    analysis = predicted(states={("rotary-d_model 16", 1): "FAILED"}, allow_partial=True)
    by_name = {change.name: change for change in size_predictions(analysis).changes}
    rotary = by_name["rotary instead of sinusoidal"]
    effects = []
    for size in range(4):
        offsets = [
            offset("rotary", size, seed) - offset("sinusoidal", size, seed)
            for seed in (2, 3, 4, 5, 6)
        ]
        effects.append(EFFECTS["rotary"][size] + np.mean(offsets))
    line = np.polynomial.Polynomial.fit([0, 1, 2], effects[:3], deg=1)
    assert rotary.seeds == 5
    assert rotary.measured == pytest.approx(effects[3], abs=1e-6)
    assert rotary.by_line.effect == pytest.approx(line(3), abs=1e-6)
    assert rotary.by_same_effect.effect == pytest.approx(effects[2], abs=1e-6)


def test_each_change_has_the_baseline_of_its_own_data(analysed):
    axes = {"positional": ["sinusoidal", "rotary"], "data": ["A", "B"], "size": SIZES}

    def score(values, seed):
        on_rotary = 0.02 if values["positional"] == "rotary" else 0.0
        noise = np.sin(7 * seed + 3 * len(values["positional"]) + SIZES.index(values["size"]))
        return 0.4 + 0.3 * (values["data"] == "B") + on_rotary + 0.001 * noise

    found = size_predictions(analysed(axes=axes, score=score, question="Which encoding?"))
    names = [change.name for change in found.changes]
    assert names == ["rotary instead of sinusoidal (A)", "rotary instead of sinusoidal (B)"]
    for change, data in zip(found.changes, ("A", "B"), strict=True):
        assert all(f"-{data}-" in slug for pair in change.pairs for slug in pair)
        assert change.measured == pytest.approx(0.02, abs=0.003)


def test_planned_looks_widen_the_intervals(predicted, monkeypatch):
    analysis = predicted()
    once = size_predictions(analysis).changes[0].by_line.half_width
    monkeypatch.setattr(type(analysis.frames), "looks", Looks((6, 12, 24)))
    assert size_predictions(analysis).changes[0].by_line.half_width > 1.1 * once


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
    analysis = predicted(**study)
    assert (size_predictions(analysis) is not None) == has_predictions


@case_table(
    "study",
    [
        {"states": {("none-d_model 32", 3): "FAILED"}},
        {"equal_to": {"none-d_model 32": "sinusoidal-d_model 32"}},
        {"config": lambda axes: other_vocabulary(axes), "primary": "test/loss"},
    ],
    default=3,
)
def test_a_change_without_predictions_is_named(study, predicted):
    analysis = predicted(**study)
    assert size_predictions(analysis).omitted == ("without positions",)
    text = prediction_section(Report(analysis)).text
    assert text.endswith("Without a prediction: without positions.")


def other_vocabulary(axes):
    """Return the configuration of a variant: those without positions have characters as tokens."""
    return {"data": {"tokens": "character"}} if axes["positional"] == "none" else {}


def test_effects_that_are_the_same_in_every_seed_have_no_interval(predicted):
    assert size_predictions(predicted(score=score_without_noise)) is None


def test_sizes_with_equal_parameters_have_no_line(predicted):
    analysis = predicted(same_parameters=True)
    assert size_predictions(analysis) is None


def test_the_weights_are_those_of_the_line_of_least_squares():
    positions = [1.0, 2.5, 3.0, 7.0]
    values = np.array([0.3, -0.2, 0.9])
    line = np.polynomial.Polynomial.fit(positions[:3], values, deg=1)
    assert values @ weights_of_line(positions) == pytest.approx(line(7.0))


def test_the_section_has_both_predictions_and_counts_the_missed(predicted):
    section = prediction_section(Report(predicted()))
    assert list(section.frame.columns) == [
        "change",
        "at d_model 128",
        "by a line",
        "as at d_model 64",
        "seeds",
    ]
    rotary, none = section.frame.to_dict("records")
    assert rotary["at d_model 128"] == "+0.040"
    assert none["by a line"].startswith("−0.050\n")
    assert none["by a line"].endswith("\nmissed")
    assert "The line misses 1 of 2 effects" in section.text
