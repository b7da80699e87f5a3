"""The simulation study, and its table in the page of results."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulation")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["power_rates", "collapse_rates", "healthy_rates", "look_rates"])
def test_the_rates_of_a_few_studies_are_near_their_range(simulation: ModuleType, part: str) -> None:
    for rate in getattr(simulation, part)(np.random.default_rng(1), 400):
        assert rate.low - 0.06 <= rate.rate <= rate.high + 0.04, rate.label


@pytest.mark.parametrize("moderate", [True, False])
@pytest.mark.parametrize("shape", [(20, 2, 3), (20, 6, 6), (20, 12, 4)])
def test_studies_that_are_judged_at_once_have_the_verdicts_of_a_report(
    simulation: ModuleType, shape: tuple[int, int, int], moderate: bool
) -> None:
    scores = simulation.normal((2.0, 0.5))(np.random.default_rng(1), *shape)
    scores[:, 1] += np.linspace(0, 8, len(scores))[:, None]
    test = int(not moderate)
    found = simulation.Tests(scores)
    is_within, is_beyond, *size_ends = (part[test] for part in found.sizes(2.0))
    ends = (end[test] for end in found.ends(simulation._holm_level(found.p)))
    expected = [simulation.judged(study, margin=2.0, moderate=moderate) for study in scores]
    words = np.array([[judgement.verdict for judgement in family] for family in expected])
    size = np.select([is_within, is_beyond], ["within", "beyond"], "unclear")
    direction = np.where(
        found.detected[test], np.where(found.mean > 0, "better", "worse"), "undetected"
    )
    assert words.tolist() == np.char.add(np.char.add(direction, ", "), size).tolist()
    assert {"better, beyond", "undetected, within", "undetected, unclear"} & {*words.flat}
    intervals = [[(own.interval, own.size_test.interval) for own in family] for family in expected]
    numbers = np.array(
        [
            [[part.low for part in own] + [part.high for part in own] for own in row]
            for row in intervals
        ]
    )
    low, high = ends
    assert numbers == pytest.approx(np.stack([low, size_ends[0], high, size_ends[1]], axis=-1))


@pytest.mark.parametrize("kind", ["skewed", "lattice", "with_missing", "with_equal"])
def test_any_direction_is_that_of_the_single_studies(simulation: ModuleType, kind: str) -> None:
    generator = np.random.default_rng(2)
    scores = getattr(simulation, kind, simulation.heavy_tails)(generator, 60, 6, 4)
    scores[::2, 1] += np.linspace(0, 20, 30)[:, None]
    if kind == "with_missing":
        scores[::3, 2, 1] = np.nan
    if kind == "with_equal":
        scores[::3, 2] = scores[::3, 3]
        scores[1::3, 4] = scores[1::3, 0] + 1
    expected = [[simulation.has_direction(simulation.judged(study, moderate=moderate)) for study in scores]
                for moderate in (True, False)]  # fmt: skip
    assert simulation.any_direction(scores).tolist() == expected
    assert 0 < np.mean(expected) < 1


def test_intervals_with_sentences_cover_the_difference_on_all_sentences(
    simulation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many sentences per seed variance: an interval over seeds alone covers far less.
    monkeypatch.setattr(simulation, "SEED_SD", 0.02)
    monkeypatch.setattr(simulation, "INTERACTION_SD", 2.0)
    here, everywhere, blind = simulation.sentence_coverage(np.random.default_rng(1), 500, 6, 0.0)
    assert here.is_within
    assert everywhere.is_within
    assert blind.rate < 0.85


@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_the_simulated_chains_have_the_decisions_of_a_ledger(
    simulation: ModuleType, sd: float
) -> None:
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
            judged = judge(table, baseline=ledger.incumbent or "main", stored=ledger.scores)
            ledger = Ledger(ledger.path, (*ledger.decisions, ledger.decide(judged)))
        assert [decision.kept for decision in ledger.decisions] == kept[chain].tolist()
        assert ratio[chain] == pytest.approx(
            [decision.p / decision.level for decision in ledger.decisions]
        )


@pytest.mark.slow
def test_the_best_of_many_equal_variants_is_rarely_called_worse(simulation: ModuleType) -> None:
    for rate in simulation.best_rates(np.random.default_rng(1), 300, 12, 6):
        assert rate.rate < 0.08, rate.label
