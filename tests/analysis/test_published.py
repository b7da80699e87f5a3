"""Planted claims: every verdict if the runs support it, and no verdict if they cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from headtohead.analysis.published import ClaimResult, claim_results, shared_runs
from headtohead.storage.contrasts import ClaimRecord
from headtohead.storage.frames import Frames, load_frames
from made import case_table

Plant = Callable[..., Frames]

CLAIM: dict[str, Any] = {
    "statement": "Rotary is better.",
    "variant": "rotary",
    "against": "sinusoidal",
    "metric": "test/exact_match",
    "against_metric": None,
    "lengths": None,
    "against_lengths": None,
    "published": {"variant": 25.8, "against": 12.5, "where": "BLEU, table 3"},
    "expect": "higher",
    "by": 0.0,
    "margin": None,
    "limit": None,
}


@pytest.fixture
def plant(made: ModuleType, tmp_path: Path) -> Plant:
    """Write a study of three variants with these claims; ``gaps`` are differences by seed."""

    def write(
        *claims: Mapping[str, Any],
        gap: float = 0.0,
        spread: float = 0.004,
        seeds: int = 6,
        states: Mapping[tuple[str, int], str] | None = None,
        score: Callable[[Mapping[str, Any], int], float] | None = None,
        setup: Mapping[str, Any] | None = None,
        name: str = "claims",
    ) -> Frames:
        wobble = np.random.default_rng(3).normal(0, spread, size=50)

        def planted(axes: Mapping[str, Any], seed: int) -> float:
            base = 0.5 + 0.02 * (seed % 3)
            return base + (gap + wobble[seed] if axes["positional"] == "rotary" else 0.0)

        study = made.Study(
            name=name,
            axes={"positional": ["sinusoidal", "rotary", "none"]},
            seeds=tuple(range(1, seeds + 1)),
            score=score or planted,
            states=states or {},
            maps=False,
            one_at_a_time=True,
        )
        folder = made.write_study(tmp_path, study)
        file = folder / "experiment.json"
        content = json.loads(file.read_text())
        content["published"] = {
            "source": "A. Author 2018",
            "setup": dict(setup or {}),
            "differences": [],
            "claims": [CLAIM | dict(claim) for claim in claims],
        }
        file.write_text(json.dumps(content))
        return load_frames(folder)

    return write


def claim_result(frames: Frames, **options: Any) -> ClaimResult:
    found = claim_results(frames, **options)
    assert len(found) == 1
    return found[0]


@case_table(
    ("claim", "gap", "verdict"),
    [
        ({}, 0.1, "agrees"),
        ({}, -0.1, "disagrees"),
        ({}, 0.0, "inconclusive"),
        ({"expect": "lower"}, -0.1, "agrees"),
        ({"expect": "lower"}, 0.1, "disagrees"),
        ({"by": 0.05}, 0.1, "agrees"),
        ({"by": 0.05}, 0.02, "different"),
        ({"by": 0.05}, 0.05, "different"),
        ({"by": 0.05}, 0.0, "disagrees"),
        ({"by": 0.05}, -0.1, "disagrees"),
        ({"expect": "lower", "by": 0.05}, -0.05, "different"),
        ({"expect": "equal", "margin": 0.05}, 0.0, "agrees"),
        ({"expect": "equal", "margin": 0.05}, 0.1, "disagrees"),
        ({"expect": "equal", "margin": 0.05}, -0.1, "disagrees"),
        ({"expect": "equal", "margin": 0.05}, 0.05, "different"),
        ({"expect": "equal", "margin": 0.05}, -0.05, "different"),
        ({"expect": "equal", "margin": 0.001}, 0.0, "inconclusive"),
        ({"expect": "at-most", "against": None, "limit": 0.9}, 0.0, "agrees"),
        ({"expect": "at-most", "against": None, "limit": 0.53}, 0.0, "disagrees"),
    ],
    default=8,
)
def test_every_planted_verdict_is_found(claim: dict[str, Any], gap: float, verdict: str, plant: Plant) -> None:
    assert claim_result(plant(claim, gap=gap)).verdict == verdict


def test_a_real_difference_hidden_in_noise_is_inconclusive(plant: Plant) -> None:
    assert claim_result(plant({}, gap=0.01, spread=0.2)).verdict == "inconclusive"


def test_a_difference_of_the_right_sign_that_is_too_small_has_its_own_verdict(plant: Plant) -> None:
    found = claim_result(plant({"by": 0.05}, gap=0.02))
    assert found.reason == "in the expected direction, by less than 0.05"


def test_a_size_that_is_unclear_has_its_own_verdict(plant: Plant) -> None:
    found = claim_result(plant({"by": 0.05}, gap=0.05))
    assert found.reason == "in the expected direction, whether by more than 0.05 is unclear"


@case_table(
    ("published", "includes"),
    [((0.8, 0.7), True), ((0.8, 0.6), False), ((0.6, 0.7), False), ((0.8, None), None), ((None, None), None)],
    default=3,
)
def test_the_interval_includes_or_excludes_the_published_difference(
    published: tuple[float | None, float | None], includes: bool | None, plant: Plant
) -> None:
    variant, against = published
    claim = {"published": {"variant": variant, "against": against, "where": "table 3"}}
    assert claim_result(plant(claim, gap=0.1)).includes_published is includes


def test_an_interval_in_another_unit_is_not_compared_with_the_published_difference(plant: Plant) -> None:
    published = {"variant": 0.8, "against": 0.6, "where": "table 3", "comparable": False}
    assert claim_result(plant({"published": published}, gap=0.1)).includes_published is None


@case_table(
    ("setup", "far"),
    [
        ({}, ()),
        ({"data": "WMT 2014"}, ("data",)),
        ({"data": "toy-grammar, English to French, split iid"}, ()),
        ({"pairs": 44_000}, ()),
        ({"pairs": 45_000}, ("pairs",)),
        ({"pairs": 450, "steps": 9000, "parameters": 50_000}, ("pairs", "steps")),
        ({"vocabulary": "37000 units", "seeds": 1, "model.d_model": 512}, ()),
    ],
    default=3,
)
def test_other_data_or_ten_times_the_size_are_far_apart(
    setup: dict[str, Any], far: tuple[str, ...], plant: Plant
) -> None:
    found = claim_result(plant({}, gap=-0.1, setup=setup))
    assert found.far == far
    assert found.verdict == "disagrees"
    assert found.label == ("opposite in this set-up" if far else "disagrees")


def test_a_broken_theorem_disagrees_in_every_setup(plant: Plant) -> None:
    claim = {"expect": "at-most", "against": None, "limit": 0.53}
    assert claim_result(plant(claim, setup={"data": "WMT 2014"})).label == "disagrees"


def test_claims_that_share_runs_are_listed(plant: Plant) -> None:
    frames = plant({}, {"variant": "none"}, {"variant": "none", "against": "rotary"})
    assert shared_runs(frames, claim_results(frames)) == {"rotary": (1, 3), "sinusoidal": (1, 2), "none": (2, 3)}
    single = plant({}, name="single")
    assert shared_runs(single, claim_results(single)) == {}


def test_the_interval_is_that_of_a_paired_t_test_corrected_for_the_claims(plant: Plant) -> None:
    frames = plant({}, {"expect": "equal", "margin": 0.2}, gap=0.03)
    ours = [frames.scores("rotary", "test/exact_match")[seed] for seed in range(1, 7)]
    theirs = [frames.scores("sinusoidal", "test/exact_match")[seed] for seed in range(1, 7)]
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.975)
    for found in claim_results(frames):
        assert found.difference is not None
        assert found.confidence == pytest.approx(0.975)
        assert found.difference.low == pytest.approx(expected.low, abs=1e-9)
        assert found.difference.high == pytest.approx(expected.high, abs=1e-9)


def test_a_bound_is_broken_by_a_single_run(plant: Plant) -> None:
    def score(axes: Mapping[str, Any], seed: int) -> float:
        return 0.2 if axes["positional"] == "rotary" and seed == 4 else 0.04

    claim = {"expect": "at-most", "against": None, "limit": 1 / 24}
    assert claim_result(plant(claim, score=score)).verdict == "disagrees"


def test_a_run_exactly_at_the_bound_does_not_break_it(plant: Plant) -> None:
    claim = {"expect": "at-most", "against": None, "limit": 1 / 24}
    assert claim_result(plant(claim, score=lambda axes, seed: 1 / 24)).verdict == "agrees"


@pytest.mark.parametrize(("seeds", "verdict"), [(3, "inconclusive"), (6, "agrees")])
def test_equal_differences_in_all_seeds_give_a_verdict_only_with_enough_seeds(
    seeds: int, verdict: str, plant: Plant
) -> None:
    """Each seed differs by exactly 0.4: the t-test is undefined, and a sign test requires six seeds."""
    frames = plant({}, seeds=seeds, score=lambda axes, _: 0.9 if "rotary" in axes.values() else 0.5)
    found = claim_result(frames)
    assert found.verdict == verdict
    assert ("too few" in found.reason) == (seeds == 3)


@pytest.mark.parametrize("claim", [{}, {"expect": "equal", "margin": 0.05}])
def test_equal_scores_in_few_seeds_are_the_reason_for_no_verdict(claim: dict[str, Any], plant: Plant) -> None:
    found = claim_result(plant(claim, seeds=3, score=lambda axes, seed: 0.5 + 0.01 * seed))
    assert (found.verdict, found.reason) == ("inconclusive", "both sides have the same score in every seed")


@pytest.mark.parametrize("claim", [{}, {"expect": "equal", "margin": 0.9}])
def test_a_single_seed_gives_no_verdict(claim: dict[str, Any], plant: Plant) -> None:
    found = claim_result(plant(claim, seeds=1, gap=0.3))
    assert (found.verdict, found.reason) == ("inconclusive", "one seed")


def test_missing_seeds_give_no_verdict_unless_partial_is_allowed(plant: Plant) -> None:
    frames = plant({}, gap=0.1, states={("rotary", 2): "DIVERGED"})
    found = claim_result(frames)
    assert found.verdict == "inconclusive"
    assert found.reason == "rotary: 1 diverged of 6 seeds"
    assert claim_result(frames, allow_partial=True).verdict == "agrees"


def test_the_error_for_missing_head_ablations_names_the_command(plant: Plant) -> None:
    found = claim_result(
        plant(
            {
                "metric": "heads/cross/only-one/loss",
                "against_metric": "heads/encoder/only-one/loss",
                "against": "rotary",
            }
        )
    )
    assert found.verdict == "inconclusive"
    assert found.reason == "no head ablation; run h2h ablate-heads claims, then h2h report"


def test_head_ablations_are_read_from_the_run_directory(plant: Plant, record_checksums: Callable[[Path], None]) -> None:
    frames = plant(
        {"metric": "heads/cross/only-one/loss", "against_metric": "heads/encoder/only-one/loss", "against": "rotary"}
    )
    for number, run in enumerate(frames.rows("rotary").index):
        metrics = {"heads/cross/only-one/loss": 0.9 + 0.01 * number, "heads/encoder/only-one/loss": 0.1 + 0.02 * number}
        record = {"format": 1, "split": "test", "whole": {"loss": 1.0}, "heads": [], "metrics": metrics}
        (frames.path(run) / "heads.json").write_text(json.dumps(record))
        record_checksums(frames.path(run))
    found = claim_result(load_frames(frames.directory))
    assert found.verdict == "agrees"
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.8 - 0.01 * 2.5)


def test_lengths_are_averaged_over_their_sentences(plant: Plant) -> None:
    """Buckets are 1-5, 6-8, 9-11 and 12-14 with 88, 97, 45 and 20 sentences."""
    frames = plant(
        {
            "variant": "sinusoidal",
            "against": "sinusoidal",
            "expect": "lower",
            "lengths": [9, 14],
            "against_lengths": [1, 8],
        }
    )
    found = claim_result(frames)
    table = frames.buckets[frames.buckets["run"] == frames.rows("sinusoidal").index[0]]
    scores = dict(zip(table["low"], table["exact_match"], strict=True))
    long = (45 * scores[9] + 20 * scores[12]) / 65
    short = (88 * scores[1] + 97 * scores[6]) / 185
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(long - short)
    assert found.verdict == "agrees"


def test_losses_on_different_data_are_not_compared(plant: Plant) -> None:
    frames = plant({"metric": "test/loss", "expect": "lower"}, gap=0.2)
    runs = frames.runs.copy()
    runs.loc[runs["variant"] == "rotary", "data_hash"] = "cd" * 32
    found = claim_result(replace(frames, runs=runs))
    assert found.verdict == "inconclusive"
    assert found.reason == "the two sides use different data"


def test_an_experiment_without_claims_has_no_findings(quickstart: Path) -> None:
    assert claim_results(load_frames(quickstart)) == ()


@pytest.mark.slow
def test_verdicts_have_at_most_the_stated_error_rate(plant: Plant) -> None:
    """2,000 simulated studies of eight seeds with differences at the threshold of each rule: at most 5 % have a
    verdict.
    """
    from headtohead.analysis import published

    random = np.random.default_rng(11)
    wrong = {"higher": 0, "equal": 0, "different": 0}
    higher, larger, equal = (
        ClaimRecord.model_validate(CLAIM | claim) for claim in ({}, {"by": 0.05}, {"expect": "equal", "margin": 0.05})
    )
    for _ in range(2000):
        theirs = random.normal(0.5, 0.05, size=8)
        nothing = (theirs + random.normal(0, 0.02, size=8)).tolist(), theirs.tolist()
        difference = published.paired_tests.paired(*nothing, confidence=0.95)
        wrong["higher"] += published._directed(nothing, difference, higher, 0.05)[0] != "inconclusive"
        wrong["different"] += published._directed(nothing, difference, larger, 0.05)[0] in ("agrees", "different")
        edge = (theirs + 0.05 + random.normal(0, 0.02, size=8)).tolist(), theirs.tolist()
        difference = published.paired_tests.paired(*edge, confidence=0.95)
        wrong["equal"] += published._equal(difference, equal, 0.05)[0] == "agrees"
    assert wrong["different"] / 2000 < 0.065
    assert wrong["higher"] / 2000 < 0.065
    assert wrong["equal"] / 2000 < 0.065
