"""Cautions about how the values of a study were tuned."""

import pytest

from headtohead.analysis.findings.rules import find
from made.fake_study import tuning_trial


@pytest.mark.parametrize(
    ("changes", "rule", "text"),
    [
        ({}, None, None),
        (
            {"seeds": [1001]},
            "tuned_with_one_seed",
            "Each value of the learning rate was tried with one seed",
        ),
        ({"epochs": 0.5}, "tuned_at_another_length", "with train.epochs 0.5, which is not the"),
        (
            {"coarse": "3 values of the learning rate"},
            "coarse_sweep",
            "may have missed the best setting",
        ),
    ],
)
def test_a_weak_tuning_is_a_caution(analysed, changes, rule, text):
    tuned = {
        "chosen": {"train.lr": 0.001},
        "rule": "more seeds",
        "at_the_edge": [],
        "tried": [tuning_trial(rate, [rate, rate]) for rate in (0.001, 0.002)],
    }
    tuning = {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
        "variants": {"sinusoidal": tuned},
    }
    findings = find(analysed(tuning=tuning | changes))
    rules = {"tuned_with_one_seed", "tuned_at_another_length", "coarse_sweep"}
    found = [finding for finding in findings if finding.rule in rules]
    if rule is None:
        assert not found
        return
    (finding,) = found
    assert (finding.rule, finding.severity) == (rule, "caution")
    assert text in finding.text


def test_a_value_at_the_edge_is_a_caution_that_names_the_field_and_the_variants(analysed):
    tuned = {
        "chosen": {"train.lr": 0.002},
        "rule": "more seeds",
        "at_the_edge": ["train.lr"],
        "tried": [tuning_trial(rate, [rate, rate]) for rate in (0.001, 0.002)],
    }
    tuning = {
        "experiment": "encodings-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
        "variants": {"none": tuned, "rotary": tuned},
    }
    axes = {"positional": ["sinusoidal", "rotary", "none"]}
    findings = find(analysed(axes=axes, tuning=tuning))
    (finding,) = [finding for finding in findings if finding.rule == "tuned_at_the_edge"]
    assert finding.text == (
        "The best learning rate of rotary and without positions may lie outside the sweep, whose best value is at its "
        "edge. Add values to tune."
    )
    assert finding.limit == "a better learning rate may lie outside the sweep"
