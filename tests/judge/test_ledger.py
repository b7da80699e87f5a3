"""Decisions on changes one after another: levels of LORD++, and what a ledger refuses."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from online_fdr.p_values.investing.lord.plus_plus import LordPlusPlus
from scipy import stats

from headtohead_judge import online
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger


def test_levels_and_detections_are_those_of_online_fdr() -> None:
    p_values = np.random.default_rng(1).random(200) ** 6
    procedure, detections = LordPlusPlus(alpha=0.05, wealth=online.INITIAL_WEALTH), []
    for test, p in enumerate(p_values.tolist(), 1):
        level = online.level(test, detections)
        detected = procedure.test_one(p)
        assert level == pytest.approx(procedure.last_test_level, rel=1e-6)
        assert detected == (p <= level)
        before = online.wealth(test - 1, detections)
        detections += [test] * detected
        gained = detected * (0.05 if len(detections) > 1 else 0.05 - online.INITIAL_WEALTH)
        assert online.wealth(test, detections) == pytest.approx(before - level + gained)
    assert 5 < len(detections) < 195


SEEDS = 8
SHARED = np.random.default_rng(2).normal(size=SEEDS)


def table(**means: float) -> pd.DataFrame:
    """Return scores with a standard deviation of about 1 and an effect of the seed."""
    noise = np.random.default_rng(sum(map(ord, "".join(means))))
    return pd.DataFrame(
        {
            "variant": variant,
            "seed": str(seed),
            "score": str(mean + SHARED[seed] + 0.5 * noise.normal()),
        }
        for variant, mean in means.items()
        for seed in range(SEEDS)
    )


def more_seeds() -> pd.DataFrame:
    """Return the scores of ``noise`` and of the incumbent with further seeds, under another name."""
    scores = pd.concat(
        [table(noise=3).assign(variant="new"), table(main=0, good=3).query("variant == 'good'")]
    )
    return pd.concat(
        [scores, scores.assign(seed="1" + scores["seed"], score="0." + scores["seed"])]
    )


def other_seeds() -> pd.DataFrame:
    """Return the scores of ``noise`` and of the incumbent with other names of the seeds, under another name."""
    scores = pd.concat(
        [table(noise=3).assign(variant="new"), table(main=0, good=3).query("variant == 'good'")]
    )
    return scores.assign(seed="1" + scores["seed"])


def decide(ledger: Ledger, scores: pd.DataFrame, baseline: str | None = None) -> Ledger:
    judged = judge(
        scores, baseline=baseline or ledger.incumbent, metric="score", stored=ledger.scores
    )
    return ledger.append(ledger.decide(judged))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a kept and a refused change."""
    empty = Ledger.read(tmp_path / "ledger.jsonl")
    assert empty.incumbent is None
    return decide(
        decide(empty, table(main=0, good=3), "main"), table(noise=3).assign(step="9", other="1")
    )


def test_a_kept_change_is_the_incumbent_of_the_next_decision_with_its_stored_scores(
    ledger: Ledger,
) -> None:
    first, second = ledger.decisions
    assert (first.kept, second.kept, ledger.incumbent, ledger.kept) == (True, False, "good", [1])
    assert second.incumbent_scores == first.scores
    assert Ledger.read(ledger.path) == ledger
    better = decide(ledger, table(**{"two\u2028lines": 6}))
    assert better.decisions[-1].kept
    assert Ledger.read(ledger.path).incumbent == "two\u2028lines"


def test_other_scores_of_the_incumbent_under_the_same_seeds_are_a_warning(ledger: Ledger) -> None:
    for shift in (0.0, 0.5):
        again = table(main=0, good=3).query("variant == 'good'")
        again["score"] = [
            str(float(score) + shift * (i < 2)) for i, score in enumerate(again["score"])
        ]
        judged = judge(pd.concat([table(new=5), again]), baseline="good", metric="score")
        warnings = ledger.measured_again(ledger.decide(judged))
        assert len(warnings) == (shift > 0)
        for warning in warnings:
            assert f"2 of {SEEDS} scores of 'good' differ" in warning
            assert "+0.5" in warning


def test_the_variance_of_a_decision_is_moderated_towards_that_of_earlier_decisions(
    ledger: Ledger,
) -> None:
    first, second = (
        np.array([*d.scores.values()]) - [*d.incumbent_scores.values()] for d in ledger.decisions
    )
    assert ledger.decisions[0].p == pytest.approx(
        stats.ttest_1samp(first, 0, alternative="greater").pvalue
    )
    pooled = (first.var(ddof=1) + second.var(ddof=1)) / 2  # 7 degrees of freedom each
    t = second.mean() / (pooled / SEEDS) ** 0.5
    assert ledger.decisions[1].p == pytest.approx(stats.t.sf(t, 14))


def test_where_less_is_better_a_smaller_score_is_kept(tmp_path: Path) -> None:
    scores = table(main=0, less=-3, more=3)
    for candidate, kept in (("less", True), ("more", False)):
        rows = scores[scores["variant"].isin(["main", candidate])]
        judged = judge(rows, baseline="main", metric="score", higher_is_better=False)
        assert Ledger.read(tmp_path / "none").decide(judged).kept is kept


def test_the_stated_number_of_seeds_keeps_an_improvement_in_80_percent(ledger: Ledger) -> None:
    number = ledger.seeds(1.0)
    assert number is not None
    degrees = 14 + number - 1
    for seeds, enough in ((number, True), (number - 1, False)):
        quantile = stats.t.isf(ledger.level, degrees - number + seeds)
        power = stats.nct.sf(quantile, degrees - number + seeds, seeds**0.5)
        assert bool(power >= 0.8) is enough
    assert ledger.seeds(0.001) is None


@pytest.mark.parametrize(
    ("scores", "baseline", "message"),
    [
        (table(noise=4), None, "decision 2 already has the variant 'noise'"),
        (
            table(main=4),
            None,
            "decision 1 already has the variant 'main'; a change is decided once",
        ),
        (
            table(noise=3).assign(variant="new"),
            None,
            "already has the variant 'new' under the name 'noise', with the same",
        ),
        (
            more_seeds(),
            None,
            "decision 2 already has the variant 'new' under the name 'noise', with the same scores",
        ),
        (
            other_seeds(),
            None,
            "decision 2 already has the variant 'new' under the name 'noise', with the same scores",
        ),
        (
            table(noise=3)
            .assign(variant="new")
            .assign(score=lambda rows: ["0.1", *rows["score"][1:]]),
            None,
            "decision 2 already has the variant 'new' under the name 'noise', with the same scores",
        ),
        (
            table(noise=3)
            .assign(variant="new")
            .assign(score=lambda rows: [f"{float(x):.5f}" for x in rows["score"]]),
            None,
            "decision 2 already has the variant 'new' under the name 'noise', with the same scores",
        ),
        (
            table(a=1, b=2),
            None,
            "decides on one candidate at a time; choose one with --candidate: '",
        ),
        (table(other=1, new=2), "other", "the incumbent is 'good', not 'other'"),
        (
            table(new=1).query("seed != '3'"),
            None,
            "seeds of 'new' and 'good' differ: 3 only in 'good'",
        ),
    ],
)
def test_what_does_not_continue_a_ledger_is_refused(
    ledger: Ledger, scores: pd.DataFrame, baseline: str | None, message: str
) -> None:
    before = ledger.path.read_bytes()
    with pytest.raises(HeadToHeadError) as caught:
        decide(ledger, scores, baseline)
    assert message in str(caught.value)
    assert ledger.path.read_bytes() == before


def test_a_decision_of_another_process_is_not_overwritten(ledger: Ledger) -> None:
    decide(ledger, table(other=0))
    with pytest.raises(HeadToHeadError, match="another process writes"):
        decide(ledger, table(late=9))
    link = ledger.path.with_name("link")
    link.symlink_to(ledger.path)
    decide(Ledger.read(link), table(linked=0))
    names = [decision.candidate for decision in Ledger.read(ledger.path).decisions]
    assert names == ["good", "noise", "other", "linked"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"candidate":"noise"',
            '"candidate":"other"',
            r"line 2 does not follow from .* \(its digest is that of other",
        ),
        (
            '"scores":{"0":',
            '"scores":{"0":1,"0":',
            r"line 1': not valid JSON \(the key '0' twice\)",
        ),
        ('"kept":true', '"kept":"yes?"', r"ledger\.jsonl, line 1': kept"),
        ('"kept":false', '"kept":true', r"line 2 does not follow from .* \(kept is 1, not 0\)"),
        ('"kept":true', '"kept":false', r"line 1 does not follow from .* \(kept is 0, not 1\)"),
        ('{"candidate":"good".*\n', "", r"line 1 does not follow from .* \(p is"),
        ('(?<="level":)0', "1", r"line 1 does not follow from .* \(level is 1"),
        ('"scores":{"0":', '"scores":{"0":9', r"line 1 does not follow from .* \(difference is"),
        ('(?<="p":)0', "-1", r"line 2 does not follow from .* \(p is -1"),
        (
            '(?<="incumbent":)"good"',
            '"main"',
            r"line 2 does not follow from .* the incumbent is 'good', not 'main'",
        ),
        (
            '(?<="noise","incumbent":"good","metric":)"score"',
            '"loss"',
            "line 2 .* is about score, higher is better",
        ),
    ],
)
def test_a_damaged_or_deleted_line_is_an_error_with_its_number(
    ledger: Ledger, old: str, new: str, message: str
) -> None:
    ledger.path.write_text(re.sub(old, new, ledger.path.read_text()))
    with pytest.raises(HeadToHeadError, match=message):
        Ledger.read(ledger.path)


def test_a_warning_on_repeated_scores_of_the_incumbent_is_not_repeated_by_later_decisions(
    tmp_path: Path,
) -> None:
    scores = table(main=0, good=3, later=3)
    scores.loc[scores["variant"].eq("good") & scores["seed"].isin(["1", "2"]), "score"] = (
        "3.1415926"
    )
    warnings, ledger = [], Ledger.read(tmp_path / "ledger.jsonl")
    for incumbent, candidate in (("main", "good"), ("good", "later")):
        rows = scores[scores["variant"].isin([incumbent, candidate])]
        judged = judge(rows, baseline=incumbent, metric="score", stored=ledger.scores)
        ledger = ledger.append(ledger.decide(judged))
        warnings.append(["'good' under seeds 1, 2" in text for text in judged.warnings])
    assert ledger.kept == [1]
    assert warnings == [[True], []]


@pytest.mark.parametrize("effect", [0.0, 1e-6])
def test_a_change_with_hardly_any_effect_does_not_lower_the_p_of_later_decisions(
    tmp_path: Path, effect: float
) -> None:
    scores = table(main=0, noise=0.3)
    main = scores[scores["variant"] == "main"]
    copy = main.assign(
        variant="copy",
        score=[str(float(x) + effect * seed**2) for seed, x in enumerate(main["score"])],
    )
    empty = Ledger.read(tmp_path / "ledger.jsonl")
    ledger = decide(empty, pd.concat([main, copy]), "main")
    assert (ledger.deviation is None) is (effect == 0)
    alone, later = (
        own.decide(judge(scores, baseline="main", metric="score")) for own in (empty, ledger)
    )
    assert later.p == pytest.approx(alone.p)
    if not effect:
        assert ledger.seeds(1.0) == Ledger(ledger.path, ledger.decisions * 2).seeds(1.0)
