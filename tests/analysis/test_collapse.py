"""Collapsed runs: the rule, the exact interval and the exact test."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headtohead.statistics.collapse import collapsed, rate_interval, rates_p

HEALTHY = [1.00, 1.01, 1.02, 0.99, 0.98, 1.03]


@pytest.mark.parametrize(
    ("losses", "flagged"),
    [
        pytest.param([HEALTHY, [1.0, 1.01, 3.0, 0.99, 1.02, 1.0]], {(1, 2)}, id="one run far away"),
        pytest.param([[*HEALTHY[:5], 3.0], [*HEALTHY[:5], 4.0]], {(0, 5), (1, 5)}, id="in two variants"),
        pytest.param([HEALTHY, [loss + 2 for loss in HEALTHY]], set(), id="a bad variant that varies little"),
        pytest.param([HEALTHY, [1.0, 1.01, math.nan, 0.99, 1.02, 1.0]], {(1, 2)}, id="not a number"),
        pytest.param([[1.0, 1.0, 1.3, 1.0], [0.5, 1.5, 1.0, 2.0]], set(), id="not the worst run"),
        pytest.param([[*HEALTHY[:5], 30.0]], set(), id="a single variant"),
        pytest.param([[1.0, 1.01, 1.3], [1.0, 1.01, 0.99]], set(), id="three seeds"),
    ],
)
def test_the_rule_flags(losses: list[list[float]], flagged: set[tuple[int, int]]) -> None:
    found = collapsed(losses)
    assert {(v, s) for v, row in enumerate(found) for s, is_flagged in enumerate(row) if is_flagged} == flagged


def test_runs_of_committed_reports_are_flagged_only_with_a_planted_loss() -> None:
    found = []
    for file in sorted((Path(__file__).parents[2] / "reports").rglob("results.csv")):
        runs = pd.read_csv(file).dropna(subset="valid/loss").groupby("variant")["valid/loss"]
        losses = [own.to_numpy() for _, own in runs]
        assert not np.concatenate(collapsed(losses)).any(), file
        for variant in range(len(losses) if len(losses) > 1 else 0):
            planted = [own.copy() for own in losses]
            planted[variant][0] = 8.0
            found.append(collapsed(planted)[variant][0])
    assert len(found) > 20
    assert np.mean(found) > 0.9


@pytest.mark.parametrize(("count", "total"), [(0, 6), (1, 6), (3, 12), (6, 6)])
def test_the_interval_is_clopper_pearsons(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(0.95, method="exact")
    found = rate_interval(count, total)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_test_is_fishers() -> None:
    generator = np.random.default_rng(1)
    for _ in range(100):
        left_total, right_total = generator.integers(1, 30, 2)
        left, right = int(generator.integers(0, left_total + 1)), int(generator.integers(0, right_total + 1))
        expected = stats.fisher_exact([[left, left_total - left], [right, right_total - right]]).pvalue
        assert rates_p(left, int(left_total), right, int(right_total)) == pytest.approx(expected)
