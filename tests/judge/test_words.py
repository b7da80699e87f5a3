"""The line on the test, p-values below 0.001, and the exit code of several variants."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from headtohead_judge.command import command
from headtohead_judge.judging import judge
from headtohead_judge.numbers import show_p
from headtohead_judge.text import SEEDS_ALONE, method_lines

SEEDS = 6


def scores(**shifts: float) -> pd.DataFrame:
    """Return a table with a variant per shift of the mean, in standard deviations of 0.01."""
    random = np.random.default_rng(7)
    seeds = random.normal(size=SEEDS)
    rows = []
    for variant, shift in shifts.items():
        values = 0.8 + 0.01 * (shift + 0.5 * seeds + random.normal(size=SEEDS))
        rows += [(variant, seed, value) for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])


def by_variant(table: pd.DataFrame) -> dict[str, list[float]]:
    return {name: rows["accuracy"].tolist() for name, rows in table.groupby("variant")}


def test_the_line_states_the_degrees_of_the_test_and_the_p_of_each_plain_paired_t_test() -> None:
    table = scores(base=0, a=1, b=2, c=0, d=5)
    judged = judge(table, baseline="base")
    (line,) = method_lines(judged)
    first = judged.variants[0].difference
    start = f"test: paired t-test; variance of 5 variants, {first.degrees:.3g} degrees of freedom{SEEDS_ALONE}; "
    assert line.startswith(start)
    assert first.degrees > SEEDS - 1
    # The degrees of freedom are those of the printed p.
    assert 2 * stats.t.sf(abs(first.mean) / first.error, first.degrees) == pytest.approx(first.p)
    values = by_variant(table)
    for name in "abcd":
        p = float(stats.ttest_rel(values[name], values["base"]).pvalue)
        assert re.search(
            rf"[ ,]{name} p {re.escape('< 0.001' if p < 0.001 else f'= {p:.3f}')}", line
        )


def test_a_single_pair_has_the_plain_test_and_separate_seeds_that_of_welch() -> None:
    table = scores(base=0, a=1)
    assert method_lines(judge(table, baseline="base")) == [
        f"test: paired t-test, 5 degrees of freedom{SEEDS_ALONE}"
    ]
    values = by_variant(table)
    welch = stats.ttest_ind(values["a"], values["base"], equal_var=False)
    assert method_lines(judge(table, baseline="base", is_paired=False)) == [
        f"test: Welch's t-test of separate seeds, {welch.df:.3g} degrees of freedom{SEEDS_ALONE}"
    ]


def test_a_variant_of_much_larger_variance_does_not_share_it() -> None:
    table = scores(base=0, a=0, b=0, c=0)
    noisy = table["variant"] == "c"
    table.loc[noisy, "accuracy"] = 0.8 + 20 * (table.loc[noisy, "accuracy"] - 0.8)
    judged = judge(table, baseline="base")
    assert "'c'" in " ".join(judged.warnings)
    assert "variance of 3 variants" in method_lines(judged)[0]


@pytest.mark.parametrize(
    ("p", "text"), [(0.00099, "< 0.001"), (0.001, "0.001"), (1e-9, "< 0.001"), (None, "–")]
)
def test_p_values_below_a_thousandth_are_printed_as_such(p: float | None, text: str) -> None:
    assert show_p(p) == text


@pytest.mark.parametrize(
    ("shifts", "options", "code", "line"),
    [
        ({"a": 9, "b": 9}, (), 0, "exit code 0: every variant is better"),
        ({"a": 9, "b": -9}, (), 3, "exit code 3: not every variant is better"),
        ({"a": 0, "b": -9}, (), 3, "exit code 3: not every variant is better"),
        ({"a": -9, "b": -9}, (), 1, "exit code 1: every variant is worse"),
        ({"b": -9}, (), 1, "exit code 1: every variant is worse"),
        ({"a": 9, "b": -9}, ("--candidate", "a"), 0, "exit code 0: every variant is better"),
        (
            {"a": 9, "b": -9},
            ("--candidate", "a", "--candidate", "b"),
            1,
            "exit code 1: a candidate is worse",
        ),
    ],
)
def test_a_worse_variant_that_the_call_does_not_name_gives_no_exit_code_1(
    shifts: dict[str, float], options: tuple[str, ...], code: int, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "scores.csv"
    scores(base=0, **shifts).to_csv(file, index=False)
    result = CliRunner().invoke(command, [str(file), "--baseline", "base", *options])
    assert (result.exit_code, result.output.splitlines()[-1]) == (code, line)
