"""The simulation study, and its table in the page of results."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulation")


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["power_rates", "gate_rates", "collapse_rates", "size_rates", "report_rates", "look_rates"]
)
def test_the_rates_of_a_few_studies_are_near_their_range(simulation: ModuleType, part: str) -> None:
    for rate in getattr(simulation, part)(np.random.default_rng(1), 400):
        assert rate.low - 0.06 <= rate.rate <= rate.high + 0.04, rate.label


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


@pytest.mark.slow
def test_the_best_of_many_equal_variants_is_rarely_called_worse(simulation: ModuleType) -> None:
    for rate in simulation.best_rates(np.random.default_rng(1), 300, 12, 6):
        assert rate.rate < 0.08, rate.label
