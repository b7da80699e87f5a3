"""The simulation study, and its table in the page of results."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from headtohead.statistics.paired_tests import interval, paired_differences

PAGE = Path(__file__).parents[2] / "benchmarks" / "results.md"


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulation")


def test_the_page_has_every_rate_within_its_stated_range(simulation: ModuleType) -> None:
    table = PAGE.read_text(encoding="utf-8").partition("\n## simulation\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| ([\d.]+) % \| (.+) \|$", table, re.MULTILINE)
    expected = simulation.simulate(3)
    assert [label for label, *_ in rows] == [rate.label for rate in expected]
    for label, measured, stated in rows:
        if limit := re.fullmatch(r"at most ([\d.]+) %", stated):
            assert float(measured) <= float(limit[1]), label
        elif limit := re.fullmatch(r"at least ([\d.]+) %", stated):
            assert float(measured) >= float(limit[1]), label
        elif level := re.fullmatch(r"([\d.]+) % ± 2", stated):
            assert abs(float(measured) - float(level[1])) <= 2, label
        else:
            assert (label.startswith("for comparison"), stated) == (True, "–")


@pytest.mark.slow
def test_few_null_studies_and_few_studies_at_the_margin_have_a_wrong_verdict(simulation: ModuleType) -> None:
    for rate in simulation.wrong_verdicts(np.random.default_rng(1), 1000, 4, 6):
        assert 0.02 < rate.rate < 0.075, rate.label


def test_intervals_with_sentences_cover_the_difference_on_all_sentences(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many sentences per seed variance: an interval over seeds alone covers far less.
    monkeypatch.setattr(simulation, "SEED_SD", 0.02)
    monkeypatch.setattr(simulation, "INTERACTION_SD", 2.0)
    here, everywhere, blind, _ = simulation.sentence_coverage(np.random.default_rng(1), 500, 6, 0.0)
    assert here.is_within
    assert everywhere.is_within
    assert blind.rate < 0.85


def test_satterthwaites_interval_covers_too_rarely_with_three_seeds(simulation: ModuleType) -> None:
    rates = re.findall(
        r"interval with sentences, Satterthwaite; 3 seeds.* \| ([\d.]+) %", PAGE.read_text(encoding="utf-8")
    )
    assert [float(rate) < 93 for rate in rates] == [True]


def test_without_sentence_variance_satterthwaites_interval_is_that_over_seeds(simulation: ModuleType) -> None:
    generator = np.random.default_rng(5)
    by_seed = generator.normal(size=(4, 1)) + np.zeros(30)
    over_seeds = interval(paired_differences(by_seed[:, 0]), 0.95)
    assert simulation.satterthwaite_half_width(by_seed) == pytest.approx((over_seeds.high - over_seeds.low) / 2)
    # Only sentences vary: the degrees of freedom are those of sentences.
    by_sentence = generator.normal(size=30) + np.zeros((4, 1))
    alone = interval(paired_differences(by_sentence[0]), 0.95)
    assert simulation.satterthwaite_half_width(by_sentence) == pytest.approx((alone.high - alone.low) / 2)


@pytest.mark.slow
def test_the_best_of_many_equal_variants_is_rarely_called_worse(simulation: ModuleType) -> None:
    for rate in simulation.best_rates(np.random.default_rng(1), 300, 12, 6):
        assert rate.rate < 0.08, rate.label
