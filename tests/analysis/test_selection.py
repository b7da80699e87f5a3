"""The variance that the choice of a tuned value adds to a mean: from tuning runs, by resampling."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.selection import (
    TuningScores,
    _chosen_again,
    _curve_model,
    selection_of,
    selections,
)
from headtohead.analysis.wording import interval_caption
from headtohead.planning.tuning.choice import Table, choose
from headtohead.planning.tuning.curve import fit_parabolas
from headtohead.storage.tuning import TrialRecord, TrialRun, TunedVariant, TuningRecord

RATES = (0.001, 0.002, 0.004, 0.008)
MINIMUM = 0.003
CURVATURE = 0.04


def trial(rate, losses, scores=None):
    runs = []
    for seed, loss in enumerate(losses):
        of_run = {"valid/loss": float(loss)}
        if scores is not None:
            of_run["test/exact_match"] = float(scores[seed])
        runs.append(TrialRun(run_hash=f"{rate}-{seed}", seed=seed, scores=of_run))
    return TrialRecord(values={"train.lr": rate}, runs=tuple(runs))


def record(trials, seeds=2):
    choice = choose(trials, seeds)
    tuned = TunedVariant(
        chosen=choice.values, rule=choice.rule, at_the_edge=(), tried=tuple(trials)
    )
    return TuningRecord(
        experiment="x-tuning",
        fields=("train.lr",),
        metric="valid/loss",
        seeds=tuple(range(seeds)),
        variants={"a": tuned},
    )


def losses_of(rates, sd, generator, seeds=2):
    """Return losses around a parabola, with a large effect of each seed."""
    expected = CURVATURE * np.log(np.array(rates) / MINIMUM) ** 2
    noise = sd * generator.normal(size=(len(rates), seeds))
    return expected[:, None] + noise + generator.normal(size=seeds)


def term(trials, metric="valid/loss", seeds=2):
    return selections(record(trials, seeds), metric).by_variant["a"]


def test_the_variance_is_that_of_the_loss_over_repeated_tunings():
    generator = np.random.default_rng(1)
    chosen, variances = [], []
    for _ in range(300):
        trials = [
            trial(rate, losses)
            for rate, losses in zip(RATES, losses_of(RATES, 0.01, generator), strict=True)
        ]
        tuned = record(trials)
        value = tuned.variants["a"].chosen["train.lr"]
        chosen.append(CURVATURE * math.log(value / MINIMUM) ** 2)
        variances.append(selections(tuned, "valid/loss").by_variant["a"].variance)
    # A choice of means has no further seeds here, so it varies a little more than one of a study.
    assert np.sqrt(np.mean(variances)) == pytest.approx(np.std(chosen), rel=0.2)


def test_effects_of_seeds_change_nothing_and_equal_runs_have_no_variance():
    losses = losses_of(RATES, 0.01, np.random.default_rng(2))
    trials = [trial(rate, row) for rate, row in zip(RATES, losses, strict=True)]
    shifted = [
        trial(rate, row + np.array([5, -3])) for rate, row in zip(RATES, losses, strict=True)
    ]
    assert term(trials) == pytest.approx(term(shifted))
    exact = losses_of(RATES, 0.0, np.random.default_rng(3))
    without_noise = [trial(rate, row) for rate, row in zip(RATES, exact, strict=True)]
    assert term(without_noise).variance == pytest.approx(0, abs=1e-20)


def test_degrees_are_the_runs_without_coefficients_and_effects_of_seeds():
    losses = losses_of(RATES, 0.001, np.random.default_rng(9))
    curve = [trial(rate, row) for rate, row in zip(RATES, losses, strict=True)]
    assert term(curve).degrees == 8 - 3 - 1
    further = [trial(0.002, losses_of((0.002,), 0.01, np.random.default_rng(5), 6)[0])]
    further.append(trial(0.004, losses_of((0.004,), 0.01, np.random.default_rng(6), 6)[0]))
    means = [trial(0.001, (9.0, 9.1)), *further]
    assert term(means).degrees == 14 - 3 - 5


def test_a_metric_that_the_value_changes_steeply_has_a_larger_variance():
    losses = losses_of(RATES, 0.01, np.random.default_rng(7))
    steep, flat = [], []
    for rate, row in zip(RATES, losses, strict=True):
        steep.append(trial(rate, row, np.log([rate, rate])))
        flat.append(trial(rate, row, [0.5, 0.5]))
    assert term(steep, "test/exact_match").variance > 100 * term(steep).variance
    assert term(flat, "test/exact_match").variance == pytest.approx(0, abs=1e-20)


def test_two_settings_that_are_equally_good_by_chance_share_half_of_their_difference():
    """Each is chosen in half of the tunings, so the variance is the squared half of their difference in the metric."""
    generator = np.random.default_rng(8)
    noise = generator.normal(size=(2, 6))
    noise -= noise.mean(axis=1, keepdims=True)
    trials = [
        trial(0.001, noise[0], np.full(6, 0.2)),
        trial(0.002, noise[1], np.full(6, 0.8)),
    ]
    assert term(trials, "test/exact_match").variance == pytest.approx(0.3**2, rel=0.05)


def chosen_naively(rates, losses, further):
    """Return the end (-1, 0 or 1) at which the best rate may be, and the logarithm of the chosen rate."""
    u = np.log(rates)
    means = losses.mean(axis=1)
    curvature, slope, offset = np.polyfit(u, means, 2)
    lack = 2 * ((means - (curvature * u**2 + slope * u + offset)) ** 2).sum()
    blocks = losses - losses.mean(axis=0)
    within = ((blocks - blocks.mean(axis=1, keepdims=True)) ** 2).sum()
    degrees = len(rates) - 3, len(rates) - 1
    is_exact = lack < 1e-20  # a resample with the same residuals at all rates
    p = 1.0 if is_exact else stats.f.sf(lack / degrees[0] / (within / degrees[1]), *degrees)
    first, second = sorted(range(len(rates)), key=means.__getitem__)[:2]
    if curvature > 0 and p >= 0.1:
        minimum = -slope / (2 * curvature)
        if min(u) < minimum < max(u):
            return 0, minimum
        end = -1 if minimum < min(u) else 1
    else:
        end = {min(rates): -1, max(rates): 1}.get(rates[first], 0)
    of_both = [np.append(losses[index], further[index]).mean() for index in (first, second)]
    best = second if of_both[1] < of_both[0] else first
    return end, u[best]


@pytest.mark.parametrize(
    "rates", [RATES, (*RATES, 0.016), (*RATES, 0.0005, 0.00025), (*RATES, 0.0005, 0.016)]
)
def test_the_variance_is_that_of_resamples_that_choose_one_by_one(rates):
    losses = losses_of(rates, 0.02, np.random.default_rng(len(rates)))
    expected = fit_parabolas(np.array(rates), losses)
    on_curve = expected.at(np.log(rates))
    residuals = losses - on_curve[:, None]
    residuals -= residuals.mean(axis=0)
    residuals *= np.sqrt(losses.size / expected.degrees)
    generator = np.random.default_rng(1)
    size = (1000, len(rates))
    drawn = [generator.integers(len(rates), size=size) for _ in range(2)]
    drawn_further = generator.integers(2 * len(rates), size=(*size, 4))
    chosen = []
    for resample in range(1000):
        table = np.empty(losses.shape)
        for seed in range(2):
            table[:, seed] = on_curve + residuals[drawn[seed][resample], seed]
        further = on_curve[:, None] + residuals.reshape(-1)[drawn_further[resample]]
        for count in range(4, len(rates) + 1):
            tried = rates[:count]
            end, logarithm = chosen_naively(tried, table[:count], further[:count])
            if count == len(rates) or end != (1 if rates[count] > max(tried) else -1):
                break
        chosen.append(float(expected.at(logarithm)))
    scores = TuningScores(losses, np.full((len(rates), 4), np.nan))
    found = selection_of(rates, 4, True, scores, scores)
    assert found.variance == pytest.approx(np.var(chosen, ddof=1), rel=1e-9)


def test_there_is_no_term_without_a_choice_or_a_second_seed():
    one_seed = [trial(rate, (rate,)) for rate in RATES]
    found = selections(record(one_seed, 1), "valid/loss")
    assert (found.by_variant, found.reason) == ({}, "values were chosen with one seed")
    assert selections(None, "valid/loss").reason == "no value is tuned"
    pending = record(one_seed, 1).model_copy(update={"variants": {}})
    assert selections(pending, "valid/loss").reason == "no value is chosen yet"
    two = [trial(rate, (rate, rate)) for rate in RATES]
    found = selections(record(two), "test/bleu")
    assert (found.by_variant, found.without_tuning_scores) == ({}, ("a",))
    assert found.reason == "tuning runs have no test/bleu"
    single = selections(record(two[:1]), "test/bleu")
    assert (single.by_variant, single.reason) == ({}, "every variant has a single value")


def test_resamples_with_the_best_value_inside_the_listed_ones_have_no_further_ones():
    """Without noise, the listed values choose as without the further one, whose loss would choose it."""
    losses = losses_of(RATES, 0.01, np.random.default_rng(10))
    listed = [trial(rate, row) for rate, row in zip(RATES, losses, strict=True)]
    further = trial(0.016, losses[1] - 0.1).model_copy(update={"is_further": True})
    assert record(listed).variants["a"].rule == "curve"
    with_further = Table.of([*listed, further], 2)
    without = Table.of(listed, 2)
    model = _curve_model(without.numbers, without.scores("valid/loss"))
    wider = replace(
        model,
        expected=np.append(model.expected, -1.0),
        residuals=np.vstack([model.residuals, np.zeros(2)]) * 0,
    )
    chosen = _chosen_again(with_further.numbers, with_further.num_listed, wider)
    assert chosen.by_curve.all()
    assert np.exp(chosen.minimum) == pytest.approx(MINIMUM, rel=0.2)
    as_listed = Table.of([*listed, further.model_copy(update={"is_further": False})], 2)
    chosen = _chosen_again(as_listed.numbers, as_listed.num_listed, wider)
    assert (chosen.best == 4).all()


def tuning_of(trials_of, seeds=(1001, 1002)):
    """Return the record of the tuning of several variants in ``experiment.json``."""
    variants = {}
    for slug, trials in trials_of.items():
        choice = choose(trials, len(seeds))
        tuned = TunedVariant(
            chosen=choice.values, rule=choice.rule, at_the_edge=(), tried=tuple(trials)
        )
        variants[slug] = tuned.to_json()
    return {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [*seeds],
        "variants": variants,
    }


def test_the_choice_of_tuned_values_is_a_source_of_variance_of_every_contrast(analysed):
    generator = np.random.default_rng(3)
    trials_of = {}
    for slug in ("sinusoidal", "rotary", "none"):
        losses = losses_of(RATES, 0.004, generator)
        rows = zip(RATES, losses, strict=True)
        trials_of[slug] = [trial(rate, row, 1 - row) for rate, row in rows]
    study = {"axes": {"positional": [*trials_of]}, "tuning": tuning_of(trials_of)}
    analysis = analysed(**study)
    terms = selections(analysis.frames.record.tuning, "test/exact_match").by_variant
    for contrast in analysis.main_contrasts:
        source = contrast.paired.sources[-1]
        of_sides = [terms[slug] for slug in contrast.variants]
        variance = sum(term.variance for term in of_sides)
        degrees = variance**2 / sum(term.variance**2 / term.degrees for term in of_sides)
        assert source.name == "tuning"
        assert (source.variance, source.degrees) == pytest.approx((variance, degrees))
        assert source.variance > 0
    sources = "training seeds, examples and tuning."
    assert interval_caption(analysis, analysis.main_contrasts).endswith(sources)
    without = {slug: [trial(r, [0.1, 0.2]) for r in RATES] for slug in trials_of}
    analysis = analysed(**study | {"name": "without", "tuning": tuning_of(without)})
    assert interval_caption(analysis, analysis.main_contrasts).endswith(
        "The variance of tuning is not included: tuning runs have no test/exact_match."
    )


def test_contrasts_of_lengths_are_named_as_without_the_variance_of_tuning(analysed):
    generator = np.random.default_rng(3)
    trials_of = {}
    for slug in ("sinusoidal", "rotary"):
        losses = losses_of(RATES, 0.004, generator)
        rows = zip(RATES, losses, strict=True)
        trials_of[slug] = [trial(rate, row, 1 - row) for rate, row in rows]
    sides = {"variant": "rotary", "against": "sinusoidal", "metric": "test/exact_match"}
    long = sides | {"name": "long", "lengths": [9, 14]}
    study = {"axes": {"positional": [*trials_of]}, "tuning": tuning_of(trials_of)}
    analysis = analysed(**study, declared=[sides | {"name": "all"}, long])
    caption = interval_caption(analysis, analysis.main_contrasts)
    assert "they include the variance of training seeds, examples and tuning" in caption
    assert (
        "The variance of tuning is not included for long: tuning runs have no scores by source length"
        in caption
    )


def test_resampled_minima_vary_as_those_of_repeated_tunings():
    generator = np.random.default_rng(11)
    minima, variances = [], []
    for _ in range(200):
        losses = losses_of(RATES, 0.005, generator)
        table = Table.of([trial(rate, row) for rate, row in zip(RATES, losses, strict=True)], 2)
        minima.append(float(fit_parabolas(np.array(RATES), losses).minimum))
        model = _curve_model(RATES, losses)
        resampled = _chosen_again(table.numbers, table.num_listed, model).minimum
        variances.append(np.nanvar(resampled))
    assert np.mean(variances) == pytest.approx(np.var(minima), rel=0.25)
