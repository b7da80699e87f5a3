"""Validity gates: cautions that appear if, and only if, a study does not carry its verdicts."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.study import Analysis
from headtohead.report.answer_file import answer_file
from headtohead.report.content import Report
from headtohead.report.score_table import score_table
from headtohead.report.sections import report_sections
from made import case_table
from made.block_oracle import Expected, expected_tests
from made.fake_study import tuning_trial

AXES = {"positional": ["sinusoidal", "rotary", "alibi", "none"]}
GATES = {
    "room": "so no verdict uses the margin",
    "control": "known to be worse",
    "collapse": "1 of rotary",
    "edge": "best learning rate of sinusoidal may lie outside the sweep",
    "coarse": "may have missed the best setting of a variant: 3 values of the learning rate",
}


def tuning(at_the_edge: list[str], coarse: str = "") -> dict[str, Any]:
    """Return the record of a sweep with the chosen value of the baseline at its edge, or inside."""
    tried = [tuning_trial(rate, [rate, rate + 0.2]) for rate in (0.001, 0.002, 0.004)]
    variant = {
        "chosen": {"train.lr": 0.001},
        "rule": "more seeds",
        "at_the_edge": at_the_edge,
        "tried": tried,
    }
    sweep = {
        "experiment": "quickstart-tuning",
        "fields": ["train.lr"],
        "metric": "valid/loss",
        "seeds": [1001, 1002],
    }
    return {**sweep, "coarse": coarse, "variants": {"sinusoidal": variant}}


Study = Callable[..., Report]


@pytest.fixture
def study(analysed: Callable[..., Analysis]) -> Study:
    def write(
        level: float,
        effect: float,
        sds: Mapping[str, float] = {},
        lost: tuple[Any, ...] = (),
        **changes: Any,
    ) -> Report:
        def score(axes: Mapping[str, Any], seed: int) -> float:
            name = str(axes["positional"])
            if (name, seed) in lost:
                return 0.05
            draw = np.random.default_rng([seed, *map(ord, name + str(axes.get("attention", "")))])
            noise = draw.normal(0, sds.get(name, 0.003))
            return float(np.clip(level + effect * (name == "none") + noise, 0, 1))

        return Report(
            analysed(score=score, margin=0.03, **{"axes": AXES, "one_at_a_time": True} | changes)
        )

    return write


@pytest.mark.parametrize(
    ("level", "effect", "options", "gates"),
    [
        pytest.param(0.8, -0.3, {}, set(), id="a control"),
        pytest.param(0.8, 0.0, {}, {"control"}, id="no control"),
        pytest.param(0.98, -0.3, {}, {"room"}, id="no room"),
        pytest.param(0.8, -0.3, {"lost": (("rotary", 3),)}, {"collapse"}, id="a collapsed run"),
        pytest.param(
            0.8, -0.3, {"tuning": tuning(["train.lr"])}, {"edge"}, id="a tuned value at the edge"
        ),
        pytest.param(
            0.8,
            -0.3,
            {"tuning": tuning([], "3 values of the learning rate")},
            {"coarse"},
            id="a coarse sweep",
        ),
        pytest.param(
            0.98,
            -0.3,
            {"lost": (("rotary", 2), ("sinusoidal", 3))},
            {"collapse", "room"},
            id="both",
        ),
    ],
)
def test_gates_appear_if_they_apply(
    level: float, effect: float, options: dict[str, Any], gates: set[str], study: Study
) -> None:
    report = study(level, effect, **options)
    stored = [
        remark["text"]
        for remark in json.loads(answer_file(report))["remarks"]
        if remark["severity"] != "note"
    ]
    assert stored == [remark.text for remark in report.cautions]
    assert {
        name for name, text in GATES.items() if any(text in remark for remark in stored)
    } == gates
    if "room" in gates:
        assert any(
            "metrics.primary: test/log_error, margin: {test/log_error: 0.22}" in remark
            for remark in stored
        )
        assert "margin" not in report.answer
        assert "Equivalent, or by less" not in score_table(report)


def test_a_size_needs_room_above_its_own_right_side(study: Study) -> None:
    names = {"Gain": ("rotary", "none"), "Tie": ("rotary", "alibi")}
    declared = [{"name": own, "variant": a, "against": b} for own, (a, b) in names.items()]
    report = study(0.985, -0.3, declared=declared, axes={"positional": ["none", "rotary", "alibi"]})
    assert [found.size for found in report.analysis.families.declared.contrasts] == [
        "by more than the margin",
        None,
    ]
    assert any("so the margin is not used for Tie." in remark.text for remark in report.cautions)


@case_table("states", [{}, {("alibi", 4): "FAILED"}], default=1)
def test_a_noisy_variant_changes_no_other_contrast(
    states: dict[tuple[str, int], str], study: Study
) -> None:
    report = study(0.8, -0.3, sds={"alibi": 0.03}, states=states)
    analysis = report.analysis
    assert list(analysis.sd_ratios) == ["alibi"]
    tested = {
        found.variant: found for found in analysis.families.variants.contrasts if found.paired
    }
    assert len(tested) == 3 - len(states)
    scores = {
        slug: [*analysis.frames.scores(slug, analysis.metric).values()]
        for slug in ("sinusoidal", "rotary", "none")
    }
    family = [{"rotary": 1, "sinusoidal": -1}, {"none": 1, "sinusoidal": -1}]
    expected = dict(zip(("rotary", "none"), expected_tests(scores, family), strict=True))
    if "alibi" in tested:
        differences = np.array([*tested["alibi"].by_seed.values()])
        own = Expected(differences.mean(), stats.sem(differences), len(differences) - 1)
        expected["alibi"] = own
    for name, test in expected.items():
        paired = tested[name].paired
        assert paired
        seeds = paired.sources[0]
        assert (paired.mean, seeds.variance, seeds.degrees) == pytest.approx(
            (test.mean, test.error**2, test.degrees)
        )


def test_collapsed_runs_enter_no_number_that_a_verdict_rests_on(study: Study) -> None:
    report = study(
        0.8,
        -0.3,
        lost=(("rotary", 3), ("sinusoidal", 5), ("alibi", 2)),
        states={("alibi", 4): "FAILED"},
    )
    analysis = report.analysis
    rotary = analysis.families.variants.contrasts[0]
    assert rotary.seeds == (1, 2, 4, 6)
    assert rotary.verdict == "equivalent"
    assert analysis.baseline_sd < 0.01
    assert analysis.uncertainty
    assert analysis.uncertainty.seed_sd < 0.01
    assert all(abs(gap.difference) < 0.4 for gap in analysis.convergence.gaps)
    (section,) = [
        found for found in report_sections(report).details if found.title == "Collapsed runs"
    ]
    assert [row[1] for row in section.rows] == ["1 of 6", "1 of 6", "1 of 5"]
    stored = json.loads(answer_file(report))["collapses"]
    rate = stats.binomtest(1, 6).proportion_ci(0.95, method="exact")
    assert [*stored] == ["sinusoidal", "rotary", "alibi"]
    assert stored["rotary"]["p"] == pytest.approx(1.0)
    assert stored["rotary"]["interval"] == pytest.approx({"low": rate.low, "high": rate.high})
    scores = analysis.frames.scores("rotary", "test/exact_match")
    assert stored["rotary"]["all_runs"]["mean"] == pytest.approx(np.mean([*scores.values()]))
    assert stored["rotary"]["without"]["mean"] == pytest.approx(
        np.mean([scores[seed] for seed in (1, 2, 4, 5, 6)])
    )


def test_a_ranking_of_pairs_leaves_out_collapsed_runs(study: Study) -> None:
    axes = {
        "positional": AXES["positional"][:3],
        "attention": ["split-heads", "qk-norm", "multi-query"],
    }
    report = study(0.8, -0.3, axes=axes, one_at_a_time=False, lost=(("rotary", 3),))
    result = report.analysis.two_way
    assert result
    assert all(found.summary.mean > 0.79 for found in result.ranking)
    assert {found.summary.n for found in result.ranking} == {5, 6}
    assert all(found.comparison and found.comparison.is_equivalent for found in result.ranking)
    assert "8 equivalent to the best" in report.answer
