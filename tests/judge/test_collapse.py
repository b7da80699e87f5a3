"""Collapsed runs: the rule that names them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, fisher_exact

from headtohead_judge.collapse import collapsed, exact_interval, fisher_p

HEALTHY = [1.00, 1.01, 1.02, 0.99, 0.98, 1.03]


@pytest.mark.parametrize(
    ("losses", "flagged"),
    [
        pytest.param([HEALTHY, [1.0, 1.01, 3.0, 0.99, 1.02, 1.0]], {(1, 2)}, id="one run far away"),
        pytest.param(
            [[*HEALTHY[:5], 3.0], [*HEALTHY[:5], 4.0]], {(0, 5), (1, 5)}, id="in two variants"
        ),
        pytest.param(
            [HEALTHY, [loss + 2 for loss in HEALTHY]], set(), id="a bad variant that varies little"
        ),
        pytest.param(
            [[4.746, 4.745, 4.68], [4.731, 4.769, 4.731]], set(), id="hardly above the others"
        ),
        pytest.param([[1.0, 1.0, 1.3, 1.0], [0.5, 1.5, 1.0, 2.0]], set(), id="not the worst run"),
        pytest.param([[*HEALTHY[:5], 30.0]], set(), id="a single variant"),
        pytest.param([[1.0, 1.01, 1.3], [1.0, 1.01, 0.99]], set(), id="three seeds"),
    ],
)
def test_the_rule_flags(losses: list[list[float]], flagged: set[tuple[int, int]]) -> None:
    found = collapsed(losses)
    assert {
        (v, s) for v, row in enumerate(found) for s, is_flagged in enumerate(row) if is_flagged
    } == flagged


def test_runs_of_committed_reports_are_flagged_only_if_a_loss_is_planted() -> None:
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


@pytest.mark.parametrize("runs", [1, 2, 3, 6, 40])
def test_rates_of_collapses_have_the_intervals_and_p_values_of_scipy(runs):
    for count in range(runs + 1):
        expected = binomtest(count, runs).proportion_ci(0.95, "exact")
        assert exact_interval(count, runs, 0.95) == pytest.approx(tuple(expected), abs=1e-9)
        for other in range(4):
            table = [[count, runs - count], [other, 3 - other]]
            assert fisher_p(count, runs, other, 3) == pytest.approx(fisher_exact(table).pvalue)
