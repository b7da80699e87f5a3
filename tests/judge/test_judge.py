"""Scores of other training code, judged by the tests of reports."""

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import headtohead_judge
from headtohead_judge.contrast import Contrast, ScoreTable, Side, estimate_family
from headtohead_judge.direction import direction
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import Judged, judge, with_decimals
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import interval, paired
from headtohead_judge.text import judged_rows
from headtohead_judge.unpaired import unpaired

BASE = [0.80, 0.82, 0.81, 0.79, 0.83, 0.80]
BETTER = [0.84, 0.85, 0.86, 0.83, 0.86, 0.85]


def wide(**variants: list[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"variant": variant, "seed": seed, "accuracy": score}
            for variant, scores in variants.items()
            for seed, score in enumerate(scores, 1)
        ]
    )


def verdicts(judged: Judged) -> dict[str, str]:
    return {found.variant: found.judgement.verdict for found in judged.variants}


def test_differences_and_intervals_are_those_of_loops_over_scipy() -> None:
    judged = headtohead_judge.judge(wide(base=BASE, better=BETTER), baseline="base", margin=0.02)
    row = judged.frame().set_index("variant").loc["better"]
    expected = stats.ttest_rel(BETTER, BASE)
    ends = expected.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(np.mean(BETTER) - np.mean(BASE))
    assert (row["adjusted_p"], row["low"], row["high"]) == pytest.approx(
        (expected.pvalue, ends.low, ends.high)
    )
    assert verdicts(judged) == {"better": "better by more than the margin"}
    first, header, *rows = str(judged).splitlines()
    assert first.startswith(
        "accuracy, higher is better, margin 0.02; paired by seed; baseline base: 0.8083 ("
    )
    assert (header.split()[:2], rows[0].split()[-1]) == (["variant", "seeds"], "margin")


def test_a_small_difference_that_is_the_same_in_every_seed_is_not_printed_as_zero() -> None:
    base = [round(score + 0.0001, 4) for score in BASE]
    raised = [round(score + 0.0003, 4) for score in BASE]
    judged = judge(wide(base=base, raised=raised), baseline="base")
    assert verdicts(judged) == {"raised": "better"}
    (row,) = judged_rows(judged)
    assert row["difference"] == "+0.000200"
    assert row["95 % interval"] == "0.000122 to 0.000278"


def test_a_difference_without_variance_has_the_decimals_of_the_scores_in_its_interval() -> None:
    step = 0.01
    for is_paired in (True, False):
        same = [0.8] * 6
        higher = [0.8 + step] * 6
        table = wide(base=same, higher=higher, equal=same)
        table["accuracy"] = table["accuracy"].map("{:.2f}".format)
        judged = judge(table, baseline="base", is_paired=is_paired)
        by_name = {variant.variant: variant.judgement for variant in judged.variants}
        errors = stats.triang(
            0.5, loc=-step, scale=2 * step
        )  # of the difference of two rounded scores
        half = errors.ppf(0.975)
        for name, difference in (("higher", step), ("equal", 0.0)):
            ends = by_name[name].interval
            assert ends is not None
            assert (ends.low, ends.high) == pytest.approx((difference - half, difference + half))
        assert by_name["equal"].direction == "identical"
        assert not by_name["equal"].is_within_margin


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_difference_has_the_decimals_of_its_side_with_fewer(is_paired: bool) -> None:
    scores = {"base": "0.50", "equal": "0.50", "fine": "0.500000", "finer": "0.500000000000"}
    rows = [(name, seed, score) for name, score in scores.items() for seed in range(6)]
    table = pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])
    for baseline, step in (("base", 1e-2), ("fine", 1e-6)):
        frame = judge(table, baseline=baseline, is_paired=is_paired).frame()
        half = stats.triang(0.5, loc=-step, scale=2 * step).ppf(0.975)
        ends = dict(zip(frame["variant"], frame["high"], strict=True))
        assert ends["finer"] == pytest.approx(half)
    assert ends["equal"] == pytest.approx(half * 1e4)


VARIED = [0.9523, 0.9711, 0.9634, 0.9582, 0.9476, 0.9655]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ({"base": [1.0] * 6, "new": VARIED}, "worse"),
        ({"base": [0.0] * 6, "new": VARIED}, "better"),
        ({"base": ["1"] * 6, "new": list(map(str, VARIED))}, "worse"),
        ({"base": [50] * 6, "new": [49, 49, 50, 49, 49, 49]}, "worse"),
        ({"base": [62, 61, 63, 62, 61, 64], "new": [63, 62, 64, 63, 62, 64]}, "better"),
        (
            {
                "base": [1234567, 1234569, 1234568, 1234566, 1234570, 1234565],
                "new": [1234568, 1234570, 1234569, 1234567, 1234571, 1234567],
            },
            "better",
        ),
        ({"base": ["0.80"] * 6, "new": ["0.81", "0.81", "0.81", "0.80", "0.81", "0.81"]}, "no difference shown"),
    ],
)  # fmt: skip
def test_round_scores_and_counts_are_exact_and_written_decimals_are_not(
    scores: dict[str, list[Any]], verdict: str
) -> None:
    assert verdicts(judge(wide(**scores), baseline="base")) == {"new": verdict}


def test_white_space_in_the_names_of_a_call_is_that_of_the_table() -> None:
    table = wide(**{"big  model": BASE, "new  model": BETTER})
    judged = judge(table, baseline="big  model", candidates=["new  model"])
    assert verdicts(judged) == {"new model": "better"}


UNSTATED = ["control", "treatment"], ["", "", "", "", "", "failed"]


@pytest.mark.parametrize("status", UNSTATED)
def test_a_column_without_known_states_or_with_failures_alone_is_no_error(
    status: list[str],
) -> None:
    table = wide(base=[*BASE, *BASE], new=[*BETTER, *BETTER])
    table["status"] = (status * 12)[: len(table)]
    judged = judge(table, baseline="base", metric="accuracy")
    assert ("row 6 (failed)" in "".join(judged.warnings)) == ("failed" in status)


@pytest.mark.parametrize(("is_paired", "seeds"), [(True, 6), (True, 20), (False, 6)])
@pytest.mark.parametrize(
    ("base_sd", "new_sd"),
    [(0, 0), (0.05, 0.05), (0.1, 0.1), (0.2, 0.2), (0.5, 0.5), (1, 1), (0, 1), (0.05, 0.3)],
)
def test_intervals_of_rounded_scores_contain_the_difference(
    base_sd: float, new_sd: float, is_paired: bool, seeds: int
) -> None:
    """The standard deviations are in steps of the last decimal."""
    generator = np.random.default_rng(0)
    studies = 250
    covered = 0
    for _ in range(studies):
        means = generator.uniform(size=2) / 10
        deviations = np.array([[base_sd], [new_sd]]) / 10
        base, new = means[:, None] + deviations * generator.normal(size=(2, seeds))
        scores = {
            "base": dict(enumerate(base.round(1).tolist())),
            "new": dict(enumerate(new.round(1).tolist())),
        }
        compare = paired if is_paired else unpaired
        difference = compare([*scores["new"].values()], [*scores["base"].values()])
        decimals = {"base": 1, "new": 1}
        (complete,) = with_decimals({"new": difference}, scores, decimals).values()
        ends = interval(complete, 0.95)
        covered += ends.low <= means[1] - means[0] <= ends.high
    assert covered / studies >= 0.92


def test_ordinary_decimals_do_not_widen_an_interval() -> None:
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(2, 20)) / 10
    fine = wide(base=scores[0].tolist(), new=scores[1].tolist())
    coarse = fine.assign(accuracy=fine["accuracy"].round(1))
    coarser = fine.assign(accuracy=(fine["accuracy"] / 10).round(1))
    widths = []
    for table in (fine, coarse):
        judged = judge(table.astype(str), baseline="base")
        (row,) = judged.frame().to_dict("records")
        widths.append(row["high"] - row["low"])
        assert judged.warnings == ()
    assert widths[1] == pytest.approx(widths[0], rel=0.15)
    table = coarser.assign(accuracy=coarser["accuracy"].map("{:.1f}".format))
    table.loc[0, "accuracy"] = "0.1"
    (warning,) = judge(table, baseline="base").warnings
    assert warning.startswith("the scores have so few decimals that their rounding makes")


def test_numbers_of_single_precision_have_seven_digits() -> None:
    base = np.array([78.7, 80.2, 79.9, 81.2, 82.1, 79.0], dtype=np.float32)
    raised = (base.astype(float) + 0.2).astype(np.float32)
    table = wide(base=base.tolist(), raised=raised.tolist())
    (row,) = judge(table, baseline="base").frame().to_dict("records")
    assert row["adjusted_p"] == pytest.approx(2 * 0.5**6)
    half = stats.triang(0.5, loc=-1e-5, scale=2e-5).ppf(0.975)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(half)
    same = headtohead_judge.same(table, baseline="base", margin=0.3)
    assert same.variants[0].judgement.interval.low == row["low"]


def test_variants_that_are_not_judged_are_counted() -> None:
    table = wide(base=BASE, better=BETTER, other=BASE[::-1], third=BETTER[::-1])
    chosen = judge(table, baseline="base", candidates=["better"])
    assert any(
        warning.startswith("2 other variants of the table are not judged")
        for warning in chosen.warnings
    )
    everything = judge(table, baseline="base")
    assert not any("not judged" in warning for warning in everything.warnings)


def test_the_variants_are_a_family_with_a_common_variance() -> None:
    rows = {"base": BASE, "better": BETTER, "other": BASE[::-1]}
    judged = judge(wide(**rows), baseline="base")
    sides = {name: Side(name, "accuracy") for name in rows}
    scores = {sides[name]: dict(enumerate(values)) for name, values in rows.items()}
    family = []
    for name in ("better", "other"):
        family.append(Contrast(name, "variant", ({sides[name]: 1.0, sides["base"]: -1.0},)))
    expected = estimate_family(family, ScoreTable(scores, (tuple(scores),)))
    assert [found.difference.sources[0] for found in judged.variants] == [
        estimate.difference.sources[0] for estimate in expected
    ]
    assert [found.variant for found in judged.variants] == ["better", "other"]
    assert verdicts(judged) == {"better": "better", "other": "no difference shown"}
    first = judged.variants[0]
    assert first.judgement.adjusted_p == pytest.approx(1 - (1 - first.difference.p) ** 2)


def test_a_verdict_that_the_paired_t_test_does_not_share_is_named() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(6, 5)) + 1.0 * np.arange(5)
    scores[1] += [2.0, 0.5, 3.0, 2.4, 0.9]
    names = ["base", "a", "b", "c", "d", "e"]
    judged = judge(wide(**dict(zip(names, scores.tolist(), strict=True))), baseline="base")
    disagreeing = []
    for found in judged.variants:
        values = [*found.by_seed.values()]
        p = 1 - (1 - stats.ttest_1samp(values, 0).pvalue) ** 5
        if (p <= 0.05) != (found.judgement.direction in ("better", "worse")):
            disagreeing.append(found.variant)
    assert disagreeing == ["a"]
    assert [text for text in judged.warnings if "paired t-test, corrected alike" in text] == [
        "the paired t-test, corrected alike, does not share the verdict on 'a': there, the verdict depends on the "
        "variance that the variants share"
    ]


def test_unpaired_scores_are_compared_by_welchs_test() -> None:
    table = wide(base=BASE, better=BETTER[:4])
    judged = judge(table, baseline="base", is_paired=False)
    found = judged.variants[0].difference
    expected = stats.ttest_ind(BETTER[:4], BASE, equal_var=False)
    ends = expected.confidence_interval(0.95)
    interval = judged.variants[0].judgement.interval
    assert (found.p, interval.low, interval.high) == pytest.approx(
        (expected.pvalue, ends.low, ends.high)
    )
    assert found.degrees == pytest.approx(expected.df)
    permuted = stats.permutation_test(
        (BETTER[:4], BASE), lambda left, right: abs(np.mean(left) - np.mean(right)), vectorized=False,
        alternative="greater",
    )  # fmt: skip
    assert found.sign_flip_p == pytest.approx(permuted.pvalue)


def test_unpaired_scores_without_spread_are_compared_by_permutations() -> None:
    table = wide(base=[0.501] * 5, higher=[0.601] * 5, equal=[0.501] * 5)
    judged = judge(table, baseline="base", is_paired=False, margin=0.2)
    higher, equal = judged.variants
    assert (higher.difference.kind, higher.difference.p) == (
        "constant",
        pytest.approx(2 / math.comb(10, 5)),
    )
    assert equal.judgement.verdict == "identical"
    assert verdicts(judged)["higher"] == "better by less than the margin"


def test_many_unpaired_seeds_are_permuted_at_random() -> None:
    generator = np.random.default_rng(0)
    left, right = generator.normal(size=(2, 40))
    judged = judge(wide(base=list(right), new=list(left)), baseline="base", is_paired=False)
    found = judged.variants[0].difference
    assert found.sign_flip_p == pytest.approx(stats.ttest_ind(left, right).pvalue, abs=0.02)


def test_lower_is_better_by_name_or_by_request() -> None:
    table = wide(base=BASE, better=BETTER)
    assert verdicts(judge(table, baseline="base", higher_is_better=False)) == {"better": "worse"}
    assert verdicts(judge(table.rename(columns={"accuracy": "valid/loss"}), baseline="base")) == {
        "better": "worse"
    }


def test_a_direction_follows_from_a_name_or_is_needed() -> None:
    lower = [
        "valid/loss",
        "WER",
        "test_error",
        "perplexity",
        "step_ms",
        "eval.nll",
        "val bpb",
        "test/bits_per_byte",
    ]
    higher = ["top1-accuracy", "test/bleu", "F1", "tokens_per_second", "mean reward", "exact_match"]
    assert [*map(direction, lower + higher)] == [False] * len(lower) + [True] * len(higher)
    for name in (
        "x",
        "entropy",
        "loss_accuracy",
        "glossary",
        "time_to_accuracy",
        "val_loss_improvement",
        "brier_score",
        "fpr_at_95_recall",
        "1-accuracy",
        "1 - bleu",
        "1 − f1",
        "-loss",
        "- mse",
        "−accuracy",
        "-val/loss",
        "1/ppl",
        "1 / loss",
        "test/1-accuracy",
    ):
        with pytest.raises(HeadToHeadError, match="add --higher-is-better or --lower-is-better"):
            direction(name)


def test_long_wide_and_histories_give_the_same_judgement() -> None:
    table = wide(base=BASE, better=BETTER)
    long = table.rename(columns={"accuracy": "value"}).assign(metric="accuracy")
    noise = long.assign(metric="loss", value=9.0)
    early = table.assign(step=1, accuracy=table["accuracy"] / 2 + table["seed"] / 1000)
    history = pd.concat([table.assign(step=10), early])
    expected = judge(table, baseline="base")
    assert judge(pd.concat([noise, long]), baseline="base", metric="accuracy") == expected
    of_history = judge(history, baseline="base", step_column="step")
    pd.testing.assert_frame_equal(of_history.frame(), expected.frame())
    with pytest.raises(HeadToHeadError, match="has seed 1 twice"):
        judge(history, baseline="base", metric="accuracy")
    ended = history[(history["step"] == 1) | (history["seed"] != 3)]
    cut = judge(ended, baseline="base", step_column="step").warnings
    assert any(
        own.startswith("runs end at different steps, from 1 (seed 3 of 'base') to 10 (seed ")
        for own in cut
    )


def test_several_columns_name_a_variant() -> None:
    table = wide(base=BASE, better=BETTER).assign(width=64)
    judged = judge(
        table, baseline="base · 64", metric="accuracy", variant_columns=("variant", "width")
    )
    assert verdicts(judged) == {"better · 64": "better"}


@pytest.mark.parametrize("column", ["variant", "seed", "accuracy"])
@pytest.mark.parametrize("spaced", [" {}", "{}\t", "\u00a0{} "])
def test_white_space_around_a_value_is_no_part_of_it(column: str, spaced: str) -> None:
    table = wide(**{"base": BASE, "much better": BETTER}).astype(str)
    table.loc[table["seed"] < "4", column] = table[column].map(spaced.format)
    assert verdicts(judge(table, baseline="base")) == {"much better": "better"}
    wider = table.assign(variant=table["variant"].str.replace(" better", "  better"))
    assert verdicts(judge(wider, baseline="base")) == {"much better": "better"}


def test_rows_that_were_copied_with_other_white_space_are_a_repeated_seed() -> None:
    table = wide(base=BASE, new=BETTER).astype(str)
    copied = table.assign(seed=table["seed"] + " ")
    with pytest.raises(HeadToHeadError, match=re.escape("'base' has seed 1 twice (rows 1, 13)")):
        judge(pd.concat([table, copied]), baseline="base")


def test_rows_of_unfinished_runs_are_left_out_with_a_warning() -> None:
    table = wide(base=BASE, better=BETTER).assign(State="finished")
    crashed = pd.DataFrame(
        [{"variant": "better", "seed": 1, "accuracy": math.nan, "State": "crashed"}]
    )
    table = pd.concat([table, crashed])
    judged = judge(
        table.set_axis([f"run-{number}" for number in range(len(table))]), baseline="base"
    )
    assert verdicts(judged) == {"better": "better"}
    assert judged.warnings[0] == "left out, as their State is not finished: row 13 (crashed)"


@pytest.mark.parametrize(
    ("column", "finished", "failed"),
    [
        ("state", "COMPLETE", "PRUNED"),  # Optuna
        ("state", "TrialState.COMPLETE", "TrialState.FAIL"),
        ("status", "TERMINATED", "ERROR"),  # Ray Tune
        ("State", "finished", "killed"),  # W&B
        ("status", "FINISHED", "SCHEDULED"),  # MLflow
        ("State", "COMPLETED", "OUT_OF_ME+"),  # Slurm
        ("State", "COMPLETED", "CANCELLED by 1001"),
        ("Job Status", "Completed", "InProgress"),  # SageMaker
        ("status", "finished", "interrupted"),  # Lightning
    ],
)
def test_failed_runs_of_other_programs_are_left_out(
    column: str, finished: str, failed: str
) -> None:
    table = wide(base=BASE, better=BETTER).assign(**{column: finished})
    outlier = pd.DataFrame([{"variant": "base", "seed": 1, "accuracy": 9.0, column: failed}])
    judged = judge(pd.concat([table, outlier]), baseline="base", metric="accuracy")
    assert verdicts(judged) == {"better": "better"}
    assert judged.warnings[0] == f"left out, as their {column} is not finished: row 13 ({failed})"


@pytest.mark.parametrize(
    ("states", "unknown"),
    [
        (["finished", "bad"], "bad"),
        (["good", "failed"], "good"),
        (["finished", "TERMINATED"], "TERMINATED"),
        (["finished", ""], "(empty)"),
    ],
)
def test_unknown_states_are_refused(states: list[str], unknown: str) -> None:
    table = wide(base=BASE, better=BETTER).assign(status=states * 6)
    with pytest.raises(
        HeadToHeadError,
        match=re.escape(f"'status' has unknown states: {unknown}; remove or rename"),
    ):
        judge(table, baseline="base")
    named = judge(
        table.assign(seed=table["seed"] // 2),
        baseline=f"base · {states[0]}".removesuffix(" "),
        variant_columns=("variant", "status"),
        is_paired=False,
    )
    assert len(named.variants) == 3


FINE = [0.8031257, 0.8214431, 0.8117864, 0.7942308, 0.8309117, 0.8056742]
OTHER = [0.8412263, 0.8529174, 0.8608835, 0.8331541, 0.8634492, 0.8517708]


def test_equal_scores_of_a_coarse_metric_are_no_warning_and_those_of_a_fine_metric_are() -> None:
    assert judge(wide(base=BASE, better=BETTER), baseline="base").warnings == ()
    (warning,) = judge(wide(base=FINE, better=[*OTHER[:5], OTHER[0]]), baseline="base").warnings
    assert warning.startswith(
        "more equal values of accuracy than its steps explain: 'better' under seeds 1, 6 (1 equal"
    )


@pytest.mark.parametrize("is_paired", [True, False])
def test_scores_copied_between_variants_are_a_warning(is_paired: bool) -> None:
    for base, new, seeds in (
        (FINE, [OTHER[0], FINE[0], *OTHER[2:]], "1 and 2"),  # under another seed
        (
            FINE,
            [*FINE[:2], *OTHER[2:]],
            "1, 2" if is_paired else "1 and 1, 2 and 2",
        ),  # under the same seeds
    ):
        (warning,) = judge(wide(base=base, new=new), baseline="base", is_paired=is_paired).warnings
        assert "'base' and 'new' under seeds " + seeds in warning
    table = wide(base=FINE, new=OTHER, same=OTHER[::-1])
    (warning,) = judge(table, baseline="base", is_paired=is_paired).warnings
    assert "'new' and 'same' under seeds 1 and 6, 2 and 5" in warning


@pytest.mark.parametrize("is_paired", [True, False])
def test_a_curve_copied_between_variants_is_a_warning_even_of_a_coarse_metric(
    is_paired: bool,
) -> None:
    early = wide(base=[value - 0.1 for value in BASE], new=[value - 0.2 for value in BETTER])
    table = pd.concat([early.assign(step=1), wide(base=BASE, new=BETTER).assign(step=2)])
    table["accuracy"] += (
        0.01 * (table["seed"] == 6) * (table["step"] == 1)
    )  # seeds 1 and 6 of base have equal ends
    table["accuracy"] += (
        0.02 * table["seed"].isin([3, 5]) * (table["variant"] == "new") * (table["step"] == 1)
    )
    table["accuracy"] += (
        0.03 * table["seed"].isin([5, 6]) * (table["variant"] == "new") * (table["step"] == 1)
    )
    arguments = {"baseline": "base", "step_column": "step", "is_paired": is_paired}
    assert not judge(table, **arguments).warnings
    source = table[(table["variant"] == "base") & (table["seed"] == 2)]
    copied = pd.concat(
        [table.query("variant == 'base' or seed != 4"), source.assign(variant="new", seed=4)]
    )
    (warning,) = judge(copied, **arguments).warnings
    assert warning == (
        "the same values at every step: seed 2 of 'base' and seed 4 of 'new'; check that these are separate runs"
    )


def test_paired_variants_without_any_difference_are_identical_and_no_copies() -> None:
    judged = judge(wide(base=FINE, same=FINE), baseline="base")
    assert (verdicts(judged), judged.warnings) == ({"same": "identical"}, ())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"State": ["finished"] * 12, "status": ["ok"] * 11 + ["failed"]},
         "row 12: 'State' is 'finished' and 'status' is 'failed'; remove one of the two columns"),
        ({"metric": "accuracy", "value": 0.5}, "'accuracy' is a column and a value of the column 'metric'; remove"),
    ],
)  # fmt: skip
def test_two_values_of_a_quantity_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadToHeadError, match=re.escape(message)):
        judge(wide(base=BASE, new=BETTER).assign(**columns), baseline="base", metric="accuracy")


def test_a_second_column_that_agrees_or_has_no_states_is_accepted() -> None:
    table = wide(base=BASE, new=BETTER).assign(State="finished", status="good")
    assert verdicts(judge(table, baseline="base")) == {"new": "better"}
    assert verdicts(judge(table.assign(status="ok"), baseline="base")) == {"new": "better"}


SMALL = [0.080, 0.081, 0.079, 0.082, 0.080, 0.081]


@pytest.mark.parametrize(
    ("metric", "scores", "named"),
    [
        ("accuracy", {"base": BASE, "new": [100 * score for score in BETTER]}, "'new'"),
        ("WER", {"base": [100 * score for score in SMALL], "new": SMALL}, "'base'"),
        ("accuracy", {"base": [80.0, *BASE[1:]], "new": BETTER}, "'base' under seeds 1"),
        ("f1", {"base": [80.0, *BASE[1:]], "new": [81.0, *BETTER[1:5], 0.0]}, "'base' under seeds 1, 'new' under"),
        ("accuracy", {"base": [100.0] * 6, "new": [1.0] * 6}, "'base'"),
        ("accuracy", {"base": BASE, "new": BETTER}, ""),
        ("accuracy", {"base": [0.01, 0.02, 0.5, 0.9, 1.0, 0.0], "new": BETTER}, ""),
        ("accuracy", {"base": [0.5, 1.5, 8, 40, 70, 90], "new": [0.4, 2, 9, 50, 80, 95]}, ""),
        ("BLEU", {"base": [28.1, 27.9, 28.4, 28.3, 28.0, 28.2], "new": [28.6, 0.4, 28.9, 28.2, 28.5, 28.7]}, ""),
        ("reward", {"base": [0.5, 0.9, 1.1, 2, 3, 0.2], "new": [90, 95, 80, 85, 92, 99]}, ""),
        ("score", {"base": BASE, "new": [8.0, 8.1, 7.9, 8.2, 8.3, 8.0]}, ""),
        ("score", {"base": BASE, "new": [800.0, 810, 790, 820, 830, 805]}, ""),
        ("loss", {"base": [0.8, 0.7, 0.9, 0.8, 0.8, 80.0], "new": [60.0, 70, 75, 80, 85, 90]}, ""),
    ],
)  # fmt: skip
def test_fractions_beside_percentages_are_refused(
    metric: str, scores: dict[str, list[float]], named: str
) -> None:
    table = wide(**scores).rename(columns={"accuracy": metric})
    if not named:
        judge(table, baseline="base")
        return
    with pytest.raises(HeadToHeadError) as raised:
        judge(table, baseline="base")
    message = str(raised.value)
    assert message.startswith(f"scores of {named}")
    assert message.endswith(
        "look like percentages, and the others like fractions; write all in one unit"
    )


@pytest.mark.parametrize("seed", ["mean", "STD", "Median"])
def test_a_row_that_summarises_others_is_refused(seed: str) -> None:
    rows = [(variant, str(number), 0.8) for variant in ("base", "new") for number in range(6)]
    rows += [("base", seed, 0.8), ("new", seed, 0.8)]
    table = pd.DataFrame(rows, columns=["variant", "seed", "accuracy"])
    with pytest.raises(HeadToHeadError, match=f"row 13: the seed '{seed}' is that of a summary"):
        judge(table, baseline="base")


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (wide(base=BASE, new=BETTER), {"baseline": "bsae"}, "no variant 'bsae' for --baseline; did you mean 'base'?"),
        (
            pd.DataFrame({"variant;seed;accuracy": ["base;1;0.8"]}),
            {},
            "the table has one column, 'variant;seed;accuracy'; commas separate the columns of .csv, and tabs those",
        ),
        (
            pd.DataFrame({"base": ["base"], "1": [2], "0.80": [0.8]}),
            {},
            "the first line of the table has no column 'variant' but the number 1; begin with the names of the columns",
        ),
        (wide(base=BASE), {}, "only the baseline 'base' has scores; a comparison needs another variant"),
        (wide(base=BASE[:1], new=BETTER[:1]), {}, "variant 'base' has a single seed; a test needs at least two"),
        (
            wide(base=BASE, new=BETTER[:4]),
            {},
            "seeds of 'new' and 'base' differ: 5 only in 'base', 6 only in 'base'; add the missing runs, or, "
            "without --ledger, compare with --unpaired",
        ),
        (wide(base=BASE, new=BETTER).assign(loss=1.0), {}, "several metrics; choose with --metric: accuracy, loss"),
        (wide(base=BASE, new=BETTER).assign(state="crashed"), {}, "no run is finished: the column 'state' has crashed"),
        (
            wide(base=BASE, new=BETTER).assign(state=["finished"] * 11 + ["failed"]),
            {},
            "seeds of 'new' and 'base' differ: 6 only in 'base'",
        ),
        (
            pd.concat([wide(base=BASE, new=BETTER).assign(step=2), wide(base=BASE, new=BETTER).assign(step=math.nan)]),
            {"step_column": "step"},
            "row 13: 'step' has no number",
        ),
        (wide(base=BASE, new=BETTER), {"metric": "acuracy"}, "no metric 'acuracy'; did you mean 'accuracy'?"),
        (
            wide(base=BASE, new=BETTER[:4]),
            {"is_paired": False, "looks": Looks((4, 6))},
            "'new' has 4 seeds and 'base' 6; looks need equal numbers",
        ),
    ],
)  # fmt: skip
def test_unusable_tables_are_refused(
    table: pd.DataFrame, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(HeadToHeadError) as error:
        judge(table, **{"baseline": "base", **arguments})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "text", ["80%", "80.5 %", "0,8", ",8", "8,000", "8.000,5", "8.000.000", "8'000", "8 000", "−0.8", "5‰"]
)  # fmt: skip
def test_numbers_with_marks_are_refused_unless_a_metric_is_chosen(text: str) -> None:
    table = wide(base=BASE, new=BETTER)
    marked = table.rename(columns={"accuracy": "seconds"}).assign(accuracy=text)
    message = f"the column 'accuracy' has numbers with a percent sign, comma or other mark, such as '{text}'; write"
    for named in (marked, marked.drop(columns="seconds")):
        with pytest.raises(HeadToHeadError, match=re.escape(message)):
            judge(named, baseline="base")
    assert verdicts(judge(marked, baseline="base", metric="seconds")) == {"new": "worse"}


@pytest.mark.parametrize(
    "text", ["", "-", "1.2.3", "2026-07-01", "12:30", "127.0.0.1", "5 % more", "3e", "1,2,3", "%"]
)
def test_other_texts_are_no_numbers_with_marks(text: str) -> None:
    table = wide(base=BASE, new=BETTER).assign(note=text)
    assert verdicts(judge(table, baseline="base")) == {"new": "better"}


@pytest.mark.parametrize("others", [0, 1, 19])
def test_the_seeds_for_single_runs_hold_at_the_level_of_all_comparisons(others: int) -> None:
    scores = {"base": [0.80], "new": [0.83]}
    for number in range(others):
        scores[f"other {number}"] = [0.8 + number / 100]
    with pytest.raises(HeadToHeadError, match="needs") as error:
        judge(wide(**scores), baseline="base", sd=0.02)
    needed = int(re.search(r"needs (\d+) seeds", str(error.value))[1])
    confidence = 0.95 ** (1 / (1 + others))
    powers = []
    for seeds in (needed - 1, needed):
        effect = 0.03 / (0.02 * math.sqrt(2 / seeds))
        critical = stats.t.ppf((1 + confidence) / 2, seeds - 1)
        powers.append(stats.nct.sf(critical, seeds - 1, effect))
    assert powers[0] < 0.8 <= powers[1]


def test_a_study_between_two_looks_has_no_verdict() -> None:
    judged = judge(wide(base=BASE, better=BETTER), baseline="base", looks=Looks((5, 10)))
    assert (verdicts(judged), judged.more_seeds) == ({"better": "no verdict"}, 4)
    judged = judge(wide(base=BASE, better=BETTER), baseline="base", looks=Looks((6, 10)))
    assert (verdicts(judged), judged.more_seeds) == ({"better": "better"}, 4)
    single = judge(wide(base=BASE, better=BETTER), baseline="base")
    assert judged.variants[0].judgement.adjusted_p > single.variants[0].judgement.adjusted_p
    assert judged.variants[0].judgement.interval.low < single.variants[0].judgement.interval.low


def test_looks_are_at_equal_intervals_and_not_before_three_seeds() -> None:
    assert Looks.planned(4, 20).seeds == (5, 10, 15, 20)
    assert Looks.planned(8, 14).seeds == (3, 4, 6, 7, 9, 11, 13, 14)
    assert Looks.planned(1, 6).next(5) == 6
    assert Looks.planned(1, 6).next(6) is None
    with pytest.raises(ValueError, match="ascending"):
        Looks((6, 4))


@pytest.mark.parametrize("alpha", [0.05, 0.0125, 0.1])
def test_the_level_is_the_largest_p_that_is_adjusted_to_alpha(alpha: float) -> None:
    looks = Looks((4, 8, 12))
    level = looks.level(alpha)
    assert looks.adjusted(level) <= alpha < looks.adjusted(level * 1.01)


@pytest.mark.slow
def test_the_normal_limit_is_pococks_boundary() -> None:
    # Pocock (1977), table 1: nominal levels of 2, 4 and 5 looks at 5 %.
    for number, nominal in ((2, 0.0294), (4, 0.0182), (5, 0.0158)):
        looks = Looks.planned(number, 50 * number)
        assert looks.level(0.05) == pytest.approx(nominal, abs=0.0006)


@pytest.mark.parametrize("baseline", ["base", "noisy"])
def test_a_noisy_variant_is_named_and_has_paired_t_tests(baseline: str) -> None:
    scores = np.random.default_rng(4).normal(size=(4, 6)) * [[1], [1], [1], [20]]
    rows = dict(zip(("base", "a", "b", "noisy"), scores.tolist(), strict=True))
    judged = judge(wide(**rows), baseline=baseline)
    assert any("'noisy' (" in warning for warning in judged.warnings)
    for found in judged.variants:
        if "noisy" in (found.variant, baseline):
            assert found.difference.p == found.difference.paired_p
        else:
            calm = judge(wide(**{name: rows[name] for name in ("base", "a", "b")}), baseline="base")
            by_name = {variant.variant: variant.difference for variant in calm.variants}
            assert found.difference.sources == by_name[found.variant].sources
