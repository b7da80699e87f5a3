"""Simulated studies of equal variants with tuned rates are those of the planner, the analysis and the judge."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headtohead.analysis.selection import selections
from headtohead.planning.tuning.choice import choose
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.planning.tuning.trials import tuned_variant
from headtohead.planning.tuning.widening import MAX_WIDENINGS, widened
from headtohead.storage.tuning import (
    TUNING_METRIC,
    Rule,
    TrialRecord,
    TrialRun,
    TunedVariant,
    TuningRecord,
)
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.verdicts import DETECTED, judge
from made import case_table

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "simulated-studies.md"
RATE = "train.lr"


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulated_tuning")


class TunedByThePlanner:
    """A variant that the functions of the planner tune, one setting at a time."""

    def __init__(self, simulation, sweep, losses):
        self.simulation = simulation
        self.first = sweep.rates[0]
        self.losses = losses

    def trial(self, rate, seeds):
        row = round(math.log2(rate / self.first)) + self.simulation.BEYOND
        runs = []
        for seed, loss in enumerate(self.losses[row, :seeds].tolist()):
            runs.append(TrialRun(run_hash="", seed=seed, scores={TUNING_METRIC: loss}))
        is_listed = 0 <= row - self.simulation.BEYOND < self.simulation.LISTED
        return TrialRecord(values={RATE: rate}, runs=tuple(runs), is_further=not is_listed)

    def tune(self) -> TunedVariant:
        settings = ()
        for number in range(self.simulation.LISTED):
            rate = self.first * 2.0**number
            settings += (TuningSetting({RATE: rate}, {"train": {"lr": rate}}),)
        for _ in range(MAX_WIDENINGS + 1):
            tried = [self.trial(setting.values[RATE], 2) for setting in settings]
            choice = choose(tried, 2)
            wider = widened(settings, tried, choice)
            if wider == settings or len(wider) > self.simulation.LISTED + MAX_WIDENINGS:
                break
            settings = wider
        candidates = [trial.values for trial in choice.candidates]
        for number, trial in enumerate(tried):
            if trial.values in candidates:
                tried[number] = self.trial(trial.values[RATE], 6)
        return tuned_variant(tuple(tried), choose(tried, 2))


def judgements_of(expected, scores, terms):
    """Return the judgements of `headtohead_judge` on the contrasts with the first variant."""
    sides = [Side(str(number), TUNING_METRIC) for number in range(len(scores))]
    by_side = {}
    for side, loss, row in zip(sides, expected, scores, strict=True):
        by_side[side] = dict(enumerate((loss + row).tolist()))
    contrasts = []
    for side in sides[1:]:
        contrasts.append(Contrast(side.variant, "variant", ({side: 1, sides[0]: -1},)))
    table = ScoreTable(by_side, (sides,), selection=terms)
    differences = [estimate.difference for estimate in estimate_family(contrasts, table)]
    return judge(differences, higher_is_better=False)


def terms_of(tuned):
    record = TuningRecord(
        experiment="tuning",
        fields=(RATE,),
        metric=TUNING_METRIC,
        seeds=(0, 1),
        variants={str(number): of_variant for number, of_variant in enumerate(tuned)},
    )
    by_variant = selections(record, TUNING_METRIC).by_variant
    return {Side(slug, TUNING_METRIC): term for slug, term in by_variant.items()}


@case_table("correlation", [0.5, 0.0], default=1)
@case_table("number", range(9), default=4)
def test_studies_that_are_simulated_at_once_are_those_of_planner_analysis_and_judge(
    simulation: ModuleType, number: int, correlation: float
) -> None:
    sweep = simulation.SWEEPS[number]
    generator = np.random.default_rng([number, int(10 * correlation)])
    studies = simulation.draw_studies(sweep, 17, generator, correlation)
    with_choice = studies.intervals_with_choice
    for study in range(17):
        tuned = []
        for losses in studies.losses[study]:
            tuned.append(TunedByThePlanner(simulation, sweep, losses).tune())
        at_once = studies.tuned[study * sweep.variants : (study + 1) * sweep.variants]
        assert [of_variant.chosen[RATE] for of_variant in tuned] == [
            pytest.approx(of_variant.rate, rel=1e-9) for of_variant in at_once
        ]
        assert [of_variant.rule == Rule.CURVE for of_variant in tuned] == [
            of_variant.by_curve for of_variant in at_once
        ]
        terms = terms_of(tuned)
        variances = [term.variance for term in terms.values()]
        assert studies.choice.variance[study] == pytest.approx(variances, rel=1e-9, abs=1e-20)
        degrees = [term.degrees for term in terms.values()]
        assert studies.choice.degrees[study].tolist() == degrees
        judgements = judgements_of(studies.expected[study], studies.scores[study], terms)
        halves = [(each.interval.high - each.interval.low) / 2 for each in judgements]
        assert with_choice.half[study] == pytest.approx(halves, rel=1e-9)
        directions = [judgement.direction in DETECTED for judgement in judgements]
        assert with_choice.has_direction[study].tolist() == directions


def test_without_noise_every_variant_has_the_same_rate_near_the_minimum(
    simulation: ModuleType,
) -> None:
    for sweep in simulation.SWEEPS:
        losses = simulation.draw_losses(sweep._replace(sd=0.0), np.random.default_rng(1), 0.0)
        tuned = simulation.tune(sweep, losses)
        (rate,) = {of_variant.rate for of_variant in tuned}
        near = np.linspace(sweep.rates[0], sweep.rates[-1], 1000)
        minimum = near[simulation.loss_at(sweep, near).argmin()]
        assert 1 / 1.5 < rate / minimum < 1.5
        assert not tuned[0].by_curve  # a cubic curve without noise is no parabola


def test_the_choice_in_the_interval_leaves_fewer_wrong_directions_than_the_best_of_the_grid(
    simulation: ModuleType,
) -> None:
    sweep = simulation.SWEEPS[3]
    studies = simulation.draw_studies(sweep, 200, np.random.default_rng(1))
    sums = simulation.sums_of(sweep, studies)
    assert sums.wrong_of_grid > 0.2 * sums.studies
    assert sums.wrong < sums.wrong_of_seeds < sums.wrong_of_grid
    assert sums.wrong <= 0.06 * sums.studies
    assert sums.wider / sums.contrasts > 1.1
    assert 0.5 < sums.estimated_sd / sums.sd < 2


def test_noise_at_neighbouring_rates_has_the_given_correlation(simulation: ModuleType) -> None:
    sweep = simulation.SWEEPS[0]
    generator = np.random.default_rng(2)
    losses = [simulation.draw_losses(sweep, generator, 0.5) for _ in range(200)]
    noise = np.concatenate(losses)[:, 3:5, 0]
    assert np.corrcoef(noise.T)[0, 1] == pytest.approx(0.5, abs=0.05)
    assert noise.std(axis=0) == pytest.approx(sweep.sd, rel=0.1)


def test_an_interrupted_simulation_continues_with_the_sums_of_an_undisturbed_one(
    simulation: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "PART", 2)
    monkeypatch.setattr(simulation, "ROWS", simulation.ROWS[-2:])
    whole = tmp_path / "whole.json"
    simulation.simulate(6, (0.5,), whole)
    interrupted = tmp_path / "interrupted.json"
    simulation.simulate(2, (0.5,), interrupted)
    simulation.simulate(6, (0.5,), interrupted)
    assert interrupted.read_bytes() == whole.read_bytes()
    assert [sums["studies"] for sums in json.loads(whole.read_text()).values()] == [6, 6]


def test_the_section_names_the_rows_outside_their_limit(simulation: ModuleType) -> None:
    results = {row.key: simulation.Sums(1000, 200, 70, 40, 4000, 1000, 4.0, 1.0, 1.0, 3000, 3600.0)
               for row in simulation.ROWS}  # fmt: skip
    assert "\nNo row is outside its limit.\n" in simulation.section(results)
    row = simulation.ROWS[0]
    results[row.key] = simulation.Sums(1000, 200, 70, 60, 4000, 1000, 4.0, 1.0, 1.0, 3000, 3600.0)
    section = simulation.section(results)
    name = "equal-steps, partial rotary; correlation 0, 6.0 ± 0.8 %"
    assert f"\nOutside the limit: {name}.\n" in section
    line = "| 10 × 12 | 1,000 | 20.0 ± 1.3 | 7.0 ± 0.8 | **6.0 ± 0.8** | 25 % |"
    assert f"| equal-steps, partial rotary {line}" in section


def test_the_committed_page_has_the_section_of_the_committed_results(
    simulation: ModuleType,
) -> None:
    results = simulation.read_results()
    assert list(results) == [row.key for row in simulation.ROWS]
    assert PAGE.read_text(encoding="utf-8").endswith(simulation.section(results))
