"""The simulated studies are judged as `headtohead_judge` judges single studies, and their page has all tables."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from headtohead_judge.collapse import SENSITIVITY, collapsed
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.examples import Examples
from headtohead_judge.judging import judge as judge_table
from headtohead_judge.ledger import Ledger
from headtohead_judge.looks import BLOCK, Looks, _smallest_p
from headtohead_judge.verdicts import judge
from made import case_table

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "simulated-studies.md"
MARGIN = 2.0


@pytest.fixture(scope="module")
def simulation(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulation")


@pytest.fixture(scope="module")
def rule(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulated_intervals")


@pytest.fixture(scope="module")
def studies(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("simulated_studies")


def words(intervals, margin: float) -> list[list[str]]:
    """Return the words of contrasts, larger is better."""
    inside = intervals.is_inside(margin)
    size = np.select(
        [intervals.is_outside(margin), inside],
        [" by more than the margin", " by less than the margin"],
        "",
    )
    direction = np.where(intervals.mean > 0, "better", "worse")
    without_direction = np.where(inside, "equivalent", "no difference shown")
    return np.where(
        intervals.has_direction, np.char.add(direction, size), without_direction
    ).tolist()


@pytest.mark.parametrize("seeds", [2, 3, 6])
@pytest.mark.parametrize("kind", ["variants", "few contrasts", "product"])
def test_studies_that_are_judged_at_once_have_the_intervals_and_words_of_a_report(
    simulation, rule, studies, kind, seeds
):
    family = {
        "variants": simulation.declared(11, 12),
        "few contrasts": simulation.declared(2, 6),
        "product": simulation.product_families()[1],
    }[kind]
    generator = np.random.default_rng(seeds)
    scores = studies.normal((2.0, 0.2, 6.0))(generator, 50, family.variants, seeds)
    scores += (
        3 * generator.normal(size=(1, family.variants, 1)) * np.linspace(0, 8, 50)[:, None, None]
    )
    intervals = rule.moderated_intervals(scores, family.weights)
    low = intervals.mean - intervals.half
    high = intervals.mean + intervals.half
    expected_words = []
    for study, of_study in enumerate(scores):
        judgements = rule.judged(of_study, family.weights, margin=MARGIN)
        expected_words.append([judgement.verdict for judgement in judgements])
        ends = [[judgement.interval.low, judgement.interval.high] for judgement in judgements]
        assert np.stack([low[study], high[study]], axis=1) == pytest.approx(
            np.array(ends), rel=1e-9, abs=1e-9
        )
    assert words(intervals, MARGIN) == expected_words
    is_larger = rule.larger_variance(scores)
    assert 0 < is_larger.mean() < 0.5 or seeds < 6  # studies with and without paired t-tests


def test_intervals_over_passages_and_seeds_are_those_of_the_judge(rule, studies):
    generator = np.random.default_rng(1)
    values = studies.by_passage(generator, (50, 4, 5, 20), 0.5)
    intervals = rule.crossed_intervals(values)
    sides = [Side(str(number), "loss") for number in range(4)]
    contrasts = [
        Contrast(side.variant, "all", ({side: 1.0, sides[0]: -1.0},)) for side in sides[1:]
    ]
    for study, of_study in enumerate(values):
        by_seed = {side: dict(enumerate(row)) for side, row in zip(sides, of_study, strict=True)}
        means = {
            side: {seed: float(row.mean()) for seed, row in rows.items()}
            for side, rows in by_seed.items()
        }
        table = ScoreTable(means, (sides,), (Examples(np.arange(20), by_seed),))
        differences = [estimate.difference for estimate in estimate_family(contrasts, table)]
        expected = [judgement.interval for judgement in judge(differences)]
        half = [(interval.high - interval.low) / 2 for interval in expected]
        assert intervals.half[study] == pytest.approx(half, rel=1e-9)


@pytest.mark.parametrize("kind", ["skewed", "lattice", "missing runs", "equal scores"])
def test_any_direction_is_that_of_the_single_studies(rule, studies, kind):
    generator = np.random.default_rng(2)
    draw = getattr(studies, kind, studies.heavy_tails)
    scores = draw(generator, 60, 6, 4)
    scores[::2, 1] += np.linspace(0, 20, 30)[:, None]
    if kind == "missing runs":
        scores[::3, 2, 1] = np.nan
    if kind == "equal scores":
        scores[::3, 2] = scores[::3, 3]
        scores[1::3, 4] = scores[1::3, 0] + 1
    expected = [rule.has_direction(rule.judged(of_study)) for of_study in scores]
    assert rule.any_direction(scores).tolist() == expected
    assert 0 < np.mean(expected) < 1


@pytest.mark.parametrize(("variants", "seeds"), [(2, 3), (2, 6), (5, 4)])
def test_the_collapsed_runs_of_many_studies_are_those_of_the_judge(studies, variants, seeds):
    scores = studies.with_collapses(1, 0.3)(np.random.default_rng(1), 200, variants, seeds)
    named = studies.is_named_collapsed(scores)
    assert 0 < named.mean() < 0.2
    for study, of_study in enumerate(scores):
        losses = np.exp(-studies.LOG_LOSS_OF_A_UNIT * of_study)
        assert named[study].tolist() == collapsed([*losses])


@case_table("sd", [3.0, 1.0], default=1)
def test_the_simulated_chains_have_the_decisions_of_a_ledger(benchmark, sd):
    module = benchmark("simulated_ledger")
    chains = module.Chains(8, 6.0, sd, drift=0.5)
    decisions = module.decide(np.random.default_rng(3), 1, chains)
    assert 2 < decisions.kept.sum() < 30
    names = ["main", *(f"change {change}" for change in range(50))]
    ledger = Ledger(Path("none"), ())
    for change in range(50):
        incumbent = ledger.incumbent or "main"
        sides = {
            names[change + 1]: decisions.candidates[0, change],
            incumbent: decisions.incumbents[0, change],
        }
        rows = [
            (name, str(seed), repr(float(score)))
            for name, scores in sides.items()
            for seed, score in enumerate(scores)
        ]
        table = pd.DataFrame(rows, columns=["variant", "seed", "score"])
        judged = judge_table(table, baseline=incumbent)
        ledger = Ledger(ledger.path, (*ledger.decisions, ledger.decide(judged)))
    assert [decision.kept for decision in ledger.decisions] == decisions.kept[0].tolist()
    ratios = [decision.p / decision.level for decision in ledger.decisions]
    assert decisions.ratio[0] == pytest.approx(ratios)


def test_intervals_over_seeds_alone_miss_the_difference_on_other_text(rule, studies):
    values = studies.by_passage(np.random.default_rng(1), (1000, 3, 6, 20), 0.8)
    intervals = rule.crossed_intervals(values)
    assert intervals.covers(0).all(axis=1).mean() > 0.93
    over_seeds = rule.moderated_intervals(values.mean(axis=3))
    assert over_seeds.covers(0).all(axis=1).mean() < 0.7


def test_looks_without_a_smaller_level_find_false_differences(rule, studies):
    looks = Looks.planned(4, 16)
    scores = studies.normal()(np.random.default_rng(1), 4000, 2, 16)

    def false_verdicts(level: float) -> float:
        found = np.zeros(len(scores), dtype=bool)
        for seeds in looks.seeds:
            intervals = rule.moderated_intervals(scores[:, :, :seeds], level=level)
            found |= intervals.has_direction.any(axis=1)
        return float(found.mean())

    assert false_verdicts(looks.level(0.05)) < 0.06
    assert false_verdicts(0.05) > 0.1


def test_the_stated_sensitivity_of_the_collapse_rule_is_that_of_the_page():
    page = PAGE.read_text(encoding="utf-8")
    stated = re.findall(r"(\d+) to (\d+) %", SENSITIVITY)
    with_three_seeds = re.findall(r"(\d+) %", SENSITIVITY.split("three seeds")[1])
    rows = re.findall(r"^\| \d+ % collapse, loss × 4.5 \|(.*)\|$", page, re.MULTILINE)
    for row, (low, high), three in zip(rows, stated, with_three_seeds, strict=True):
        rates = np.array([float(cell) for cell in row.split("|")]).reshape(2, 3)
        assert [rates[:, 1:].min(), rates[:, 1:].max()] == pytest.approx(
            [int(low), int(high)], abs=0.5001
        )
        assert rates[:, 0] == pytest.approx(int(three), abs=1)


def test_the_page_names_the_cells_outside_their_limits(simulation):
    cells = [simulation.Cell(0.051, high=0.055), simulation.Cell(0.06, high=0.055)]
    table = simulation.Table("Rates", "Limit: 5.5.", ["6 seeds", "3 seeds"], {"normal": cells})
    page = simulation.page([table], 100)
    assert "- normal: 6.0 % (3 seeds)\n" in page
    assert "| normal | 5.1 | **6.0** |" in page


@pytest.fixture
def rough_levels(monkeypatch):
    """Compute the levels of looks from few simulated studies."""
    _smallest_p.cache_clear()
    monkeypatch.setattr("headtohead_judge.looks.STUDIES", BLOCK)
    yield
    _smallest_p.cache_clear()


@pytest.mark.usefixtures("rough_levels")
def test_the_committed_page_has_all_tables_of_the_script(simulation):
    committed = PAGE.read_text(encoding="utf-8")

    def without_rates(page: str) -> str:
        tables = page[page.index("\n## ", page.index("## Cells outside") + 1) :]
        return re.sub(r"[*\d.,–]+", "#", tables)

    tables = []
    for part in simulation.PARTS:
        tables += simulation.simulate(part, 200)
    page = simulation.page(tables, 20_000)
    assert without_rates(page) == without_rates(committed)


@pytest.mark.parametrize("part", ["power_tables", "detectable_tables", "look_tables"])
def test_the_rates_of_a_few_studies_are_near_their_limits(simulation, part):
    for table in getattr(simulation, part)(np.random.default_rng(1), 400):
        for label, cells in table.rows.items():
            for cell in cells:
                assert cell.low - 0.07 <= cell.rate <= cell.high + 0.04, (table.title, label)
