"""Which setting the losses of tuning runs choose: the minimum of a parabola, or the best mean with further seeds."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from headtohead import files
from headtohead.planning.record import experiment_record
from headtohead.planning.tuning.choice import choose
from headtohead.planning.tuning.curve import LACK_OF_FIT_LEVEL, fit_parabolas
from headtohead.planning.tuning.widening import widened
from headtohead.storage.tuning import Rule, TrialRecord, TrialRun

RATES = (0.001, 0.002, 0.004, 0.008)
SEEDS = (0.05, -0.02)
"""The effects of two seeds on every loss."""


def trial(rate, losses, first_seed=1):
    runs = []
    for seed, loss in enumerate(losses, first_seed):
        scores = {} if loss is None else {"valid/loss": loss}
        runs.append(TrialRun(run_hash=f"{rate}-{seed}", seed=seed, scores=scores))
    return TrialRecord(values={"train.lr": rate}, runs=tuple(runs))


def bowl(minimum, rates=RATES, noise=0.0, cubic=0.0):
    """Return trials around a minimum, with alternating noise that no effect of values or seeds explains."""
    trials = []
    for number, rate in enumerate(rates):
        u = math.log(rate / minimum)
        losses = []
        for seed, effect in enumerate(SEEDS):
            sign = (-1) ** (number // 2 + seed)
            losses.append(1.5 + 0.04 * u**2 + cubic * u**3 + effect + sign * noise)
        trials.append(trial(rate, losses))
    return trials


@pytest.mark.parametrize("rates", [RATES, RATES[::-1], (*RATES, 0.016)])
@pytest.mark.parametrize("minimum", [0.00123, 0.00456])
def test_the_minimum_of_a_parabola_is_chosen_with_three_digits(minimum, rates):
    choice = choose(bowl(minimum, rates, noise=0.001), 2)
    assert (choice.rule, choice.reason) == (Rule.CURVE, "")
    assert choice.values["train.lr"] == pytest.approx(minimum, rel=0.1)
    assert choice.values["train.lr"] == float(f"{choice.values['train.lr']:.3g}")
    assert choose(bowl(minimum, rates), 2).values == {"train.lr": minimum}


def test_parabolas_hold_down_to_the_level_of_the_test_for_lack_of_fit():
    generator = np.random.default_rng(3)
    curve = np.log(np.array(RATES) / 0.003) ** 2
    scores = curve[:, None] + generator.normal(size=(500, 4, 2))
    fits = fit_parabolas(np.array(RATES), scores)
    passes = fits.lack_of_fit_p >= LACK_OF_FIT_LEVEL
    assert 20 < (~passes).sum() < 100
    assert (fits.hold == (passes & (fits.coefficients[:, 2] > 0))).all()


def test_equal_settings_are_candidates_in_their_order():
    tried = [trial(rate, (2.0, 2.0)) for rate in (0.004, 0.001, 0.002)]
    choice = choose(tried, 2)
    assert choice.values == {"train.lr": 0.004}
    assert [candidate.values["train.lr"] for candidate in choice.candidates] == [0.004, 0.001]


def test_fit_and_lack_of_fit_are_those_of_a_regression_with_a_variable_per_seed():
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(5, 3))
    values = np.array([0.001, 0.002, 0.003, 0.01, 0.02])
    fits = fit_parabolas(values, scores)
    u = np.log(values) - np.log(values).mean()
    parabola, every_value = [], []
    for value, seed in itertools.product(range(5), range(3)):
        of_seed = [float(seed == other) for other in range(3)]
        parabola.append([u[value], u[value] ** 2, *of_seed])
        every_value.append([*(float(value == other) for other in range(1, 5)), *of_seed])
    flat = scores.ravel()
    coefficients, (residual,), rank, _ = np.linalg.lstsq(np.array(parabola), flat)
    _, (within,), _, _ = np.linalg.lstsq(np.array(every_value), flat)
    assert fits.coefficients[1:] == pytest.approx(coefficients[:2])
    assert (fits.degrees, fits.residual_sd) == (15 - rank, pytest.approx((residual / 10) ** 0.5))
    f = ((residual - within) / 2) / (within / 8)
    assert fits.lack_of_fit_p == pytest.approx(stats.f.sf(f, 2, 8))


def test_many_tables_are_fitted_as_each_alone():
    scores = np.random.default_rng(2).normal(size=(7, 4, 2))
    together = fit_parabolas(np.array(RATES), scores)
    for number, table in enumerate(scores):
        alone = fit_parabolas(np.array(RATES), table)
        assert together.minimum[number] == pytest.approx(alone.minimum, nan_ok=True)
        assert together.lack_of_fit_p[number] == pytest.approx(alone.lack_of_fit_p)


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        (bowl(0.004, noise=0.001, cubic=0.03), "the parabola does not fit, p "),
        (bowl(0.02), "the minimum of the parabola is outside the values"),
        (bowl(0.004, RATES[:3]), "fewer than 4 values have no diverged run"),
        ([*bowl(0.004), trial(0.0, (2.0, 2.0))], "not all values are numbers"),
        ([trial(rate, (u, u)) for rate, u in zip(RATES, (1, 2, 2, 1), strict=True)], "no minimum"),
    ],
)
def test_without_a_parabola_that_holds_the_two_best_settings_get_further_seeds(trials, reason):
    choice = choose(trials, 2)
    assert choice.rule == Rule.MORE_SEEDS
    assert reason in choice.reason
    means = sorted(trials, key=lambda tried: tried.mean)
    assert list(choice.candidates) == means[:2]
    assert choice.values == means[0].values


def test_the_best_mean_of_all_seeds_of_the_two_is_chosen():
    trials = bowl(0.004, RATES[:3])
    _, second, best = trials
    seconds = trial(0.002, (*second.scores("valid/loss"), 1.0, 1.1, 1.2, 1.1))
    bests = trial(0.004, (*best.scores("valid/loss"), 1.5, 1.5, 1.5, 1.5))
    assert choose([trials[0], second, best], 2).values == {"train.lr": 0.004}
    assert choose([trials[0], seconds, best], 2).values == {"train.lr": 0.004}
    assert choose([trials[0], seconds, bests], 2).values == {"train.lr": 0.002}


def test_a_value_with_a_diverged_run_is_no_point_of_the_parabola_and_is_not_followed():
    trials = [*bowl(0.004), trial(0.016, (0.1, None))]
    choice = choose(trials, 2)
    assert (choice.rule, choice.values) == (Rule.CURVE, {"train.lr": 0.004})
    outside = choose([*bowl(0.02), trial(0.016, (0.1, None))], 2)
    assert (outside.rule, outside.outside) == (Rule.MORE_SEEDS, 1)
    assert {tried.values["train.lr"] for tried in outside.candidates} == {0.004, 0.008}


def test_a_single_seed_or_setting_is_chosen_as_it_is():
    one_seed = [trial(rate, (abs(rate - 0.002),)) for rate in RATES]
    choice = choose(one_seed, 1)
    assert (choice.rule, choice.values, choice.candidates) == (
        Rule.ONE_SEED,
        {"train.lr": 0.002},
        (),
    )
    assert choose([trial(0.1, (1.0, 1.0))], 2).rule == Rule.ONE_SETTING
    diverged = [trial(0.1, (1.0, None)), trial(0.2, (None, None))]
    assert choose(diverged, 2).values == {"train.lr": 0.1}


@pytest.mark.parametrize(("minimum", "further"), [(0.02, [0.016]), (0.0001, [0.0005]), (0.003, [])])
def test_a_sweep_is_widened_on_the_side_of_the_minimum(plan, minimum, further):
    settings = plan("tune: {train.lr: [0.001, 0.002, 0.004, 0.008]}").tuning.listed
    trials = bowl(minimum)
    added = widened(settings, trials, choose(trials, 2))[len(settings) :]
    assert [setting.values["train.lr"] for setting in added] == further
    diverged = [trial(0.0005, (9.0, None)), *trials, trial(0.016, (None, 9.0))]
    assert widened(settings, diverged, choose(diverged, 2)) == settings


TUNED = "tune: {train.lr: [0.001, 0.002, 0.004, 0.008]}"


@pytest.fixture
def finish(plan, record):
    """Give every tuning run of the present plan a validation loss that depends on the rate, then plan again."""

    def finish(loss):
        sweep = plan(TUNED, seeds=1).tuning.plan
        for run in sweep.remaining:
            rate = sweep.by_slug[run.variant].config.train.lr
            record(sweep, run, metrics={"valid/loss": loss(rate), "test/exact_match": rate})
        return plan(TUNED, seeds=1)

    return finish


def test_variants_train_at_the_minimum_and_the_record_has_every_score(finish):
    found = finish(lambda rate: 1 + math.log(rate / 0.00345) ** 2)
    assert found.tuning.is_done
    assert found.by_slug["baseline"].config.train.lr == 0.00345
    tuned = experiment_record(found).tuning.variants["baseline"]
    assert (tuned.rule, tuned.how, tuned.at_the_edge) == (
        Rule.CURVE,
        "minimum of the parabola",
        (),
    )
    assert tuned.curve.minimum == pytest.approx(0.00345)
    assert tuned.curve.at(0.00345) == pytest.approx(1)
    assert [run.scores["test/exact_match"] for run in tuned.tried[1].runs] == [0.002, 0.002]


def test_a_stored_choice_is_kept_if_its_losses_are_the_same_within_rounding(finish, plan):
    found = finish(lambda rate: 1 + math.log(rate / 0.00345) ** 2)
    record = experiment_record(found).to_json()
    stored = record["tuning"]["variants"]["baseline"]
    stored["chosen"] = {"train.lr": 0.00346}
    scores = stored["tried"][0]["runs"][0]["scores"]
    scores["valid/loss"] *= 1 + 1e-12
    file = found.directory / "experiment.json"
    found.directory.mkdir()
    files.write_json(file, record)
    assert plan(TUNED, seeds=1).by_slug["baseline"].config.train.lr == 0.00346
    assert plan(TUNED, seeds=1, fresh=True).tuning.variants == {}
    scores["valid/loss"] *= 1.001
    files.write_json(file, record)
    assert plan(TUNED, seeds=1).by_slug["baseline"].config.train.lr == 0.00345
