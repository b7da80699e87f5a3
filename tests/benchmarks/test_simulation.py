"""The simulation study, and its table in the page of results."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from headtohead.analysis.judge import judge
from headtohead.analysis.ledger import Ledger


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


@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_the_simulated_chains_have_the_decisions_of_a_ledger(simulation: ModuleType, sd: float) -> None:
    kept, real, ratio, scores = simulation.chains(np.random.default_rng(3), 3, 8, 6.0, sd)
    assert 5 < kept.sum() < 75
    assert (kept & real).any()
    for chain in range(3):
        ledger = Ledger(Path("none"), ())
        names = ["main", *(f"change {change}" for change in range(50))]
        for change in range(1, 51):
            rows = [(names[each], str(seed), repr(float(scores[chain, each, seed])))
                    for each in ((0, 1) if change == 1 else (change,)) for seed in range(8)]  # fmt: skip
            table = pd.DataFrame(rows, columns=["variant", "seed", "score"])
            judged = judge(ledger.completed(table, None, "variant", "seed"), baseline=ledger.incumbent or "main")
            ledger = Ledger(ledger.path, (*ledger.decisions, ledger.decide(judged)))
        assert [decision.kept for decision in ledger.decisions] == kept[chain].tolist()
        assert ratio[chain] == pytest.approx([decision.p / decision.level for decision in ledger.decisions])


@pytest.mark.slow
def test_the_best_of_many_equal_variants_is_rarely_called_worse(simulation: ModuleType) -> None:
    for rate in simulation.best_rates(np.random.default_rng(1), 300, 12, 6):
        assert rate.rate < 0.08, rate.label
