"""Decisions on changes one after another: levels of LORD++, and what a ledger refuses."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headtohead_judge import online
from headtohead_judge.errors import HeadToHeadError, TooFewSeedsError
from headtohead_judge.judging import judge
from headtohead_judge.ledger import Ledger
from headtohead_judge.text import p_line


def test_levels_and_detections_are_those_of_online_fdr() -> None:
    peer = pytest.importorskip("online_fdr.p_values.investing.lord.plus_plus")
    p_values = np.random.default_rng(1).random(200) ** 6
    procedure, detections = peer.LordPlusPlus(alpha=0.05, wealth=online.INITIAL_WEALTH), []
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


def beside_good(name: str, mean: float) -> pd.DataFrame:
    """Return scores of a candidate, and of ``good``, the incumbent of `ledger`, trained again."""
    return table(**{"good": 3, name: mean})


def renamed_noise() -> pd.DataFrame:
    """Return the rows of ``noise`` that `ledger` has, under another name, beside other scores of the incumbent."""
    candidate = beside_good("noise", 3).query("variant == 'noise'").assign(variant="new")
    incumbent = table(good=3, again=0).query("variant == 'good'")
    return pd.concat([candidate, incumbent])


def with_score(number: int, score: str) -> pd.DataFrame:
    """Return `renamed_noise` with another score in the row of this number."""
    rows = renamed_noise()
    rows.iloc[number, rows.columns.get_loc("score")] = score
    return rows


def with_more_seeds() -> pd.DataFrame:
    """Return `renamed_noise` with further seeds of both variants."""
    rows = renamed_noise()
    return pd.concat([rows, rows.assign(seed="1" + rows["seed"], score="0." + rows["seed"])])


def decide(ledger: Ledger, scores: pd.DataFrame, baseline: str | None = None) -> Ledger:
    judged = judge(scores, baseline=baseline or ledger.incumbent, metric="score")
    return ledger.append(ledger.decide(judged))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a kept and a refused change."""
    empty = Ledger.read(tmp_path / "ledger.jsonl")
    assert empty.incumbent is None
    kept = decide(empty, table(main=0, good=3), "main")
    return decide(kept, beside_good("noise", 3).assign(step="9", other="1"))


def test_a_kept_change_is_the_incumbent_of_the_next_decision(ledger: Ledger) -> None:
    first, second = ledger.decisions
    assert (first.kept, second.kept, ledger.incumbent, ledger.kept) == (True, False, "good", [1])
    assert second.incumbent_scores.keys() == first.scores.keys()
    assert ledger.incumbent_seeds == [*first.scores]
    assert Ledger.read(ledger.path) == ledger
    better = decide(ledger, beside_good("two\u2028lines", 6))
    assert better.decisions[-1].kept
    assert Ledger.read(ledger.path).incumbent == "two lines"


@pytest.mark.parametrize(("num_new", "decided"), [(0, False), (5, False), (6, True), (8, True)])
@pytest.mark.parametrize("decision", [0, 1])
def test_the_incumbent_needs_six_scores_that_no_earlier_decision_has(
    ledger: Ledger, num_new: int, decided: bool, decision: int
) -> None:
    stored = ledger.decisions[0].scores if decision == 0 else ledger.decisions[1].incumbent_scores
    rows = beside_good("new", 5)
    for seed in map(str, range(num_new, SEEDS)):
        is_row = rows["variant"].eq("good") & rows["seed"].eq(seed)
        rows.loc[is_row, "score"] = repr(stored[seed])
    if decided:
        assert decide(ledger, rows).decisions[-1].candidate == "new"
        return
    with pytest.raises(HeadToHeadError, match=f"{SEEDS - num_new} scores of the incumbent 'good'"):
        decide(ledger, rows)


def test_scores_of_other_seeds_are_new_though_they_are_equal(ledger: Ledger) -> None:
    rows = beside_good("new", 5)
    for seed, score in ledger.decisions[0].scores.items():
        is_row = rows["variant"].eq("good") & rows["seed"].eq(seed)
        rows.loc[is_row, "score"] = repr(score)
    assert decide(ledger, rows.assign(seed="1" + rows["seed"])).decisions[-1].candidate == "new"


def test_fewer_than_six_seeds_are_no_decision(tmp_path: Path) -> None:
    empty = Ledger.read(tmp_path / "ledger.jsonl")
    few = table(main=0, good=9).query("seed < '5'")
    with pytest.raises(TooFewSeedsError, match="at least 6 seeds"):
        decide(empty, few, "main")
    with pytest.raises(TooFewSeedsError, match="fewer: 'main' 5, 'good' 5; train more seeds"):
        judge(few, baseline="main", metric="score", min_seeds=6)
    assert not empty.path.exists()


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


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_the_same_difference_in_every_seed_is_tested_by_signs(
    tmp_path: Path, precision: type[np.floating]
) -> None:
    main = np.array([78.7, 80.2, 79.9, 81.2, 82.1, 79.0])
    rows = []
    for variant, scores in {"main": main, "new": main + 0.2}.items():
        for seed, score in enumerate(scores.astype(precision).tolist()):
            rows.append((variant, seed, score))
    scores_of_both = pd.DataFrame(rows, columns=["variant", "seed", "score"])
    decided = decide(Ledger.read(tmp_path / "ledger.jsonl"), scores_of_both, "main")
    (decision,) = decided.decisions
    assert (decision.kept, decision.variance) == (False, 0)
    assert decision.p == pytest.approx(0.5**6)


def test_a_decision_has_the_numbers_of_its_p(ledger: Ledger) -> None:
    for decision in ledger.decisions:
        t = decision.difference / (decision.test_variance / SEEDS) ** 0.5
        assert decision.p == pytest.approx(stats.t.sf(t, decision.test_degrees))
    assert [decision.test_degrees for decision in ledger.decisions] == [SEEDS - 1, 2 * (SEEDS - 1)]


@pytest.mark.parametrize("number", [0, 1, 4])
def test_a_decision_of_a_much_larger_variance_has_no_part_in_the_p_of_later_ones(
    tmp_path: Path, number: int
) -> None:
    generator = np.random.default_rng(4)
    chains = {name: Ledger.read(tmp_path / name) for name in ("quiet", "noisy")}
    for change in range(6):
        scores = {"main": generator.normal(size=SEEDS), f"{change}": generator.normal(size=SEEDS)}
        for name, chain in chains.items():
            if change == number and name == "quiet":
                continue
            deviation = 30.0 if change == number else 1.0
            rows = []
            for variant, values in scores.items():
                size = 1.0 if variant == "main" else deviation
                rows += [
                    (variant, str(seed), repr(float(size * x))) for seed, x in enumerate(values)
                ]
            table = pd.DataFrame(rows, columns=["variant", "seed", "score"])
            chains[name] = decide(chain, table, "main")
    quiet, noisy = (chain.decisions for chain in chains.values())
    own = noisy[number]
    assert (own.test_variance, own.test_degrees) == (own.variance, SEEDS - 1)
    others = [decision for decision in noisy if decision != own]
    assert [d.p for d in others] == pytest.approx([d.p for d in quiet])
    assert chains["noisy"].deviation == pytest.approx(chains["quiet"].deviation)


def test_all_seeds_of_the_incumbent_are_listed_and_new_ones_follow(ledger: Ledger) -> None:
    rows = beside_good("third", 3)
    longer = decide(ledger, rows.assign(seed=[str(int(seed) + 43) for seed in rows["seed"]]))
    assert longer.incumbent_seeds == [*map(str, range(8)), *map(str, range(43, 51))]
    assert longer.new_seeds(2) == ["51", "52"]
    assert Ledger(longer.path, ()).new_seeds(2) == ["1", "2"]


def test_a_difference_within_the_decimals_of_the_scores_is_not_kept(tmp_path: Path) -> None:
    """The true means are 0.7046 of the incumbent and 0.7045 of the candidate, whose scores are rounded both ways."""
    generator = np.random.default_rng(5)
    rows = []
    for variant, mean, deviation in (("a", 0.7046, 1e-5), ("b", 0.7045, 1e-3)):
        for seed in range(30):
            score = f"{mean + deviation * generator.normal() + 0.0005:.2f}"
            rows.append({"variant": variant, "seed": str(seed), "score": score})
    scores = pd.DataFrame(rows)
    judged = judge(scores, baseline="a", metric="score")
    (candidate,) = judged.variants
    assert candidate.difference.without_decimals().p < 0.01
    assert candidate.judgement.direction == "no difference shown"
    ledger = decide(Ledger(tmp_path / "ledger.jsonl", ()), scores, baseline="a")
    (decision,) = ledger.decisions
    assert not decision.kept
    assert decision.p > 0.1
    assert "the decimals of the scores leave an error of up to 0.01" in p_line(decision)
    assert Ledger.read(ledger.path) == ledger


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


SECOND_LOOK = (
    "decision 2 already has the variant 'new' under the name 'noise', with the same scores"
)


@pytest.mark.parametrize(
    ("scores", "baseline", "message"),
    [
        (beside_good("noise", 4), None, "decision 2 already has the variant 'noise'"),
        (
            beside_good("main", 4),
            None,
            "decision 1 already has the variant 'main'; a change is decided once",
        ),
        (renamed_noise(), None, SECOND_LOOK),
        (with_more_seeds(), None, SECOND_LOOK),
        (renamed_noise().assign(seed=lambda rows: "1" + rows["seed"]), None, SECOND_LOOK),
        (with_score(0, "0.1"), None, SECOND_LOOK),
        (
            renamed_noise().assign(score=lambda rows: [f"{float(x):.5f}" for x in rows["score"]]),
            None,
            SECOND_LOOK,
        ),
        (
            table(good=3, a=1, b=2),
            None,
            "decides on one candidate at a time; choose one with --candidate: '",
        ),
        (table(other=1, new=2), "other", "the incumbent is 'good', not 'other'"),
        (table(other=1, new=2), None, "no variant 'good' for --baseline"),
        (
            beside_good("new", 1).query("seed != '3' or variant == 'good'"),
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
    decide(ledger, beside_good("other", 0))
    with pytest.raises(HeadToHeadError, match="another process writes"):
        decide(ledger, beside_good("late", 9))
    link = ledger.path.with_name("link")
    link.symlink_to(ledger.path)
    decide(Ledger.read(link), beside_good("linked", 0))
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
        ('{"candidate":"good".*\n', "", r"line 1 does not follow from .* \(test_variance is"),
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
    first = pd.concat([main, copy])
    ledger = decide(empty, first.assign(seed="1" + first["seed"]), "main")
    assert (ledger.deviation is None) is (effect == 0)
    alone, later = (
        own.decide(judge(scores, baseline="main", metric="score")) for own in (empty, ledger)
    )
    assert later.p == pytest.approx(alone.p)
    if not effect:
        assert ledger.seeds(1.0) == Ledger(ledger.path, ledger.decisions * 2).seeds(1.0)
