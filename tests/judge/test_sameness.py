"""``judge --same``: equivalence of two sets of runs, or of their curves at stated steps."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from scipy import stats

import headtohead_judge
from headtohead_judge.command import command
from headtohead_judge.errors import HeadToHeadError

STEPS = (100, 200, 300)
SEEDS = 6


def curves(shift: float, *, at: int | None = None, seed: int = 1) -> pd.DataFrame:
    """Return curves of 'old' and 'new'; a difference of ``shift`` is planted, at a single step if one is given."""
    generator = np.random.default_rng(seed)
    rows = []
    for run in range(SEEDS):
        shared = generator.normal(3.0, 0.01)
        for step in STEPS:
            for variant in ("old", "new"):
                loss = shared - step / 1000 + generator.normal(0.0, 0.001)
                if variant == "new" and at in (None, step):
                    loss += shift
                rows.append((variant, run, step, loss))
    return pd.DataFrame(rows, columns=["variant", "seed", "step", "loss"])


def call(folder: Path, table: pd.DataFrame, *options: str) -> Result:
    file = folder / "scores.csv"
    table.to_csv(file, index=False)
    return CliRunner().invoke(command, [str(file), "--baseline", "old", "--same", *options])


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (0.003, 0), (0.01, 3), (0.03, 1)])
def test_the_exit_code_follows_a_planted_difference(
    tmp_path: Path, shift: float, code: int
) -> None:
    done = call(tmp_path, curves(shift), "--step", "step", "--margin", "0.01")
    assert done.exit_code == code, done.output
    assert f"exit code {code}: " in done.output.splitlines()[-1]


def test_a_difference_at_a_single_step_is_found_if_the_step_is_stated(tmp_path: Path) -> None:
    table = curves(0.03, at=200)
    options = ("--step", "step", "--margin", "0.01")
    assert call(tmp_path, table, *options).exit_code == 0
    assert call(tmp_path, table, *options, "--at", "100", "--at", "300").exit_code == 0
    done = call(tmp_path, table, *options, *(f"--at={step}" for step in STEPS), "--format", "json")
    assert done.exit_code == 1
    answer = json.loads(done.output)
    assert [row["same"] for row in answer["comparisons"]] == [True, False, True]
    assert answer["comparisons"][1]["verdict"] == "larger by more than the margin"


def test_the_intervals_are_those_of_paired_t_tests_at_the_level_of_all_steps() -> None:
    table = curves(0.003)
    sameness = headtohead_judge.same(
        table, baseline="old", margin=0.01, steps=STEPS, step_column="step"
    )
    confidence = 0.95 ** (1 / len(STEPS))
    for comparison in sameness.variants:
        rows = table[table["step"] == comparison.step].pivot(
            index="seed", columns="variant", values="loss"
        )
        expected = stats.ttest_rel(rows["new"], rows["old"]).confidence_interval(confidence)
        interval = comparison.judgement.interval
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_different_runs_are_called_the_same_in_at_most_5_percent_of_studies() -> None:
    """A difference as large as the margin, with the number of seeds that the undecided answer names."""
    called_same = 0
    studies = 200
    for study in range(studies):
        sameness = headtohead_judge.same(
            curves(0.002, seed=study), baseline="old", margin=0.002, step_column="step"
        )
        called_same += sameness.exit_code == 0
    assert called_same / studies <= 0.05


def test_the_stated_number_of_seeds_shows_equal_runs_the_same_in_80_percent_of_studies() -> None:
    generator = np.random.default_rng(0)
    spread = 1.0
    seeds = 18
    same = []
    needed = []
    for _ in range(150):
        values = generator.normal(0.0, spread, size=(2, seeds))
        rows = [
            (name, seed, value)
            for name, row in zip(("old", "new"), values, strict=True)
            for seed, value in enumerate(row)
        ]
        table = pd.DataFrame(rows, columns=["variant", "seed", "loss"])
        sameness = headtohead_judge.same(table, baseline="old", margin=1.15)
        same.append(sameness.exit_code == 0)
        needed.append(sameness.seeds_needed)
    assert abs(np.median(needed) - seeds) <= 1
    assert abs(np.mean(same) - 0.8) < 0.1


@pytest.mark.parametrize(("old", "new"), [(14, 14), (14, 40), (40, 14), (14, 200)])
@pytest.mark.parametrize("new_spread", [1.0, 3.0])
def test_the_stated_number_of_separate_seeds_does_not_depend_on_how_many_there_are(
    old: int, new: int, new_spread: float
) -> None:
    """Equal runs with this number of seeds are inside the margin in 80 % of simulated studies."""
    normal = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    rows = []
    for name, seeds, spread in (("old", old, 1.0), ("new", new, new_spread)):
        values = normal[np.linspace(0, 199, seeds).astype(int)]
        values *= spread / values.std(ddof=1)
        rows += [(name, seed, value) for seed, value in enumerate(values)]
    table = pd.DataFrame(rows, columns=["variant", "seed", "loss"])
    margin = math.sqrt((1 + new_spread**2) / 2)
    sameness = headtohead_judge.same(table, baseline="old", margin=margin, is_paired=False)
    needed = sameness.seeds_needed
    assert needed is not None
    generator = np.random.default_rng(0)
    base, other = generator.normal(size=(2, 4000, needed)) * [[[1.0]], [[new_spread]]]
    ends = stats.ttest_ind(other, base, axis=1, equal_var=False).confidence_interval(0.95)
    is_inside = (ends.low > -margin) & (ends.high < margin)
    assert is_inside.mean() == pytest.approx(0.8, abs=0.04)


def test_identical_runs_are_the_same_and_separate_seeds_are_compared(tmp_path: Path) -> None:
    table = curves(0.0)
    copy = table[table["variant"] == "old"]
    both = pd.concat([copy, copy.assign(variant="new")])
    done = call(tmp_path, both, "--step", "step", "--margin", "1e-9", "--at", "100")
    assert (done.exit_code, "identical" in done.output) == (0, True)
    other = table.assign(seed=table["seed"] + 100 * (table["variant"] == "new"))
    done = call(tmp_path, other, "--step", "step", "--margin", "0.05", "--unpaired")
    assert (done.exit_code, "unpaired" in done.output) == (0, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--same requires --margin X"),
        (("--margin", "0"), "--margin must be a positive number"),
        (("--margin", "1", "--looks", "2"), "--same does not accept --ledger"),
        (("--margin", "1", "--accept", "worse"), "--same does not accept --ledger"),
        (("--margin", "1", "--at", "100"), "need the column of the step; name it with --step"),
        (("--margin", "1", "--step", "step", "--at", "nan"), "--at must be a number"),
        (("--margin", "1", "--step", "step", "--at", "1", "--at", "1"), "--at names a step twice"),
        (
            ("--margin", "1", "--step", "step", "--at", "150"),
            "variant 'old', seed 0 has no score at step 150; its steps: 100, 200, 300",
        ),
    ],
)
def test_bad_input_is_an_error(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    done = call(tmp_path, curves(0.0), *options)
    assert isinstance(done.exception, HeadToHeadError)
    assert message in str(done.exception)


def test_at_needs_same_and_an_answer_replaces_only_one_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    curves(0.0).to_csv(file, index=False)
    done = CliRunner().invoke(command, [str(file), "--baseline", "old", "--at", "100"])
    assert "--at requires --same" in str(done.exception)
    answer = tmp_path / "answer.json"
    options = ("--step", "step", "--margin", "0.01", "--answer", str(answer))
    for _ in range(2):
        assert call(tmp_path, curves(0.0), *options).exit_code == 0
    assert json.loads(answer.read_text())["exit_code"] == 0
    answer.write_text('{"mine": 1}')
    done = call(tmp_path, curves(0.0), *options)
    assert "was not written by this command" in str(done.exception)


@pytest.mark.parametrize(
    ("shift", "margin", "line"),
    [
        (0.0, 0.0008, "14 seeds of each side would show in 80 % of cases"),
        (0.004, 0.0044, "the observed difference is too near the margin: if the runs were equal, "),
    ],
)
def test_undecided_runs_have_the_number_of_seeds_or_a_difference_near_the_margin(
    tmp_path: Path, shift: float, margin: float, line: str
) -> None:
    done = call(tmp_path, curves(shift), "--step", "step", "--margin", str(margin))
    assert done.exit_code == 3
    assert done.stdout.splitlines()[-3].startswith(line)


@pytest.mark.parametrize(
    ("score", "code"), [("0.8", 3), ("1.0", 3), ("1", 3), ("0.80000", 0), ("1.00000", 0)]
)
def test_equal_scores_are_the_same_if_their_decimals_show_the_margin(
    tmp_path: Path, score: str, code: int
) -> None:
    rows = [(variant, seed, score) for variant in ("old", "new") for seed in range(SEEDS)]
    table = pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])
    done = call(tmp_path, table, "--margin", "0.001")
    assert done.exit_code == code, done.output
    assert ("too few decimals" in done.output) == (code == 3)


def test_equal_differences_of_few_seeds_need_more_seeds(tmp_path: Path) -> None:
    scores = {"old": "0.800000", "new": "0.800100"}
    rows = [(variant, seed, score) for variant, score in scores.items() for seed in range(3)]
    table = pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])
    done = call(tmp_path, table, "--margin", "0.01")
    assert done.exit_code == 3
    assert "train more seeds" in done.output
    assert "decimals" not in done.stdout


def test_rounded_scores_that_hardly_vary_need_more_decimals(tmp_path: Path) -> None:
    rounded = {"old": ["0.80"] * 18 + ["0.81"] * 2, "new": ["0.80"] * 16 + ["0.81"] * 4}
    rows = [
        (name, seed, text) for name, texts in rounded.items() for seed, text in enumerate(texts)
    ]
    table = pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])
    for margin in ("0.007", "0.002"):
        done = call(tmp_path, table, "--margin", margin)
        assert done.exit_code == 3
        assert "too few decimals" in done.output
    assert call(tmp_path, table, "--margin", "0.02").exit_code == 0
