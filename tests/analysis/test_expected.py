"""Planted expected results: every agreement if the runs support it, and none if they cannot."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.agreement import Agreement, agreement
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.report.answer import answer
from headtohead.schema.experiment_file import Expectation
from headtohead.storage.frames import Frames, load_frames
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import paired_differences
from made import case_table
from made.block_oracle import expected_test, scores_of
from made.fake_study import record_checksums

Plant = Callable[..., Frames]
HEADS = {
    "metric": "heads/cross/only-one/loss",
    "against_metric": "heads/encoder/only-one/loss",
    "against": "rotary",
}


def expect(direction: str = "higher", by: float = 0.0) -> dict[str, Any]:
    return {
        "direction": direction,
        "by": by,
        "published": None,
        "source": "A. Author 2018, table 3",
    }


@pytest.fixture
def plant(analysed: Callable[..., Analysis]) -> Plant:
    """Write a study of three variants that declares contrasts; ``gap`` is the mean effect of rotary."""

    def write(
        *contrasts: Mapping[str, Any],
        gap: float = 0.0,
        seeds: int = 6,
        states: Mapping[tuple[str, int], str] | None = None,
        score: Callable[[Mapping[str, Any], int], float] | None = None,
    ) -> Frames:
        wobble = np.random.default_rng(3).normal(0, 0.004, size=50)
        wobble -= wobble[1:7].mean()  # the mean of the six seeds is exactly the gap

        def planted(axes: Mapping[str, Any], seed: int) -> float:
            base = 0.5 + 0.02 * (seed % 3)
            return base + (gap + wobble[seed] if axes["positional"] == "rotary" else 0.0)

        defaults = {
            "name": "c",
            "variant": "rotary",
            "against": "sinusoidal",
            "expect": expect(),
        }
        frames: Frames = analysed(
            axes={"positional": ["sinusoidal", "rotary", "none"]},
            seeds=tuple(range(1, seeds + 1)),
            score=score or planted,
            states=states or {},
            one_at_a_time=True,
            declared=[defaults | dict(contrast) for contrast in contrasts],
        ).frames
        return frames

    return write


def contrast_of(frames: Frames, **options: Any) -> ContrastResult:
    (found,) = Analysis(frames, **options).families.declared.contrasts
    assert found.agreement is not None
    return found


@case_table(
    ("expected", "gap", "words"),
    [
        (expect(), 0.1, "agrees: higher"),
        (expect(), -0.1, "disagrees: lower"),
        (expect(), 0.0, "undecided: undetected"),
        (expect("lower"), -0.1, "agrees: lower"),
        (expect(by=0.05), 0.1, "agrees: higher, beyond"),
        (expect(by=0.05), 0.02, "disagrees: higher, within"),
        (expect(by=0.05), 0.05, "undecided: higher, unclear"),
        (expect(by=0.05), 0.0, "disagrees: undetected, within"),
        (expect(by=0.05), -0.1, "disagrees: lower, beyond"),
        (expect("lower", 0.05), -0.05, "undecided: lower, unclear"),
        (expect("equal", 0.05), 0.0, "agrees: within"),
        (expect("equal", 0.05), 0.02, "agrees: higher, within"),
        (expect("equal", 0.05), 0.1, "disagrees: higher, beyond"),
        (expect("equal", 0.001), 0.0, "undecided: undetected, unclear"),
        (expect() | {"published": 0.02}, 0.1, "agrees: higher, larger than published"),
        (expect("lower") | {"published": -0.02}, -0.1, "agrees: lower, larger than published"),
        (expect("lower") | {"published": -0.2}, -0.1, "agrees: lower, smaller than published"),
    ],
    default=6,
)
def test_planted_results_have_the_right_agreement(
    expected: dict[str, Any], gap: float, words: str, plant: Plant
) -> None:
    assert str(contrast_of(plant({"expect": expected}, gap=gap)).agreement) == words


def test_the_answer_says_whether_a_difference_is_as_expected(plant: Plant) -> None:
    assert answer(Analysis(plant({}, gap=0.1))) == "Better in exact match, as expected: c."
    assert (
        answer(Analysis(plant({}, gap=-0.1)))
        == "Worse in exact match, unlike the expected result: c."
    )
    text = "No difference detected in exact match, which leaves the expected result open: c."
    assert answer(Analysis(plant({}))).startswith(text)


def test_the_interval_is_that_of_the_test_corrected_for_the_expected_results(plant: Plant) -> None:
    frames = plant(
        {},
        {"expect": expect("equal", 0.2), "variant": "none"},
        {"expect": None, "against": "none"},
        gap=0.03,
    )
    expected = expected_test(
        scores_of(frames, "test/exact_match"), {"rotary": 1, "sinusoidal": -1}
    ).interval(0.975)
    first, equal, untested = Analysis(frames).families.declared.contrasts
    assert first.agreement.interval.level == pytest.approx(0.975)
    assert equal.agreement.interval.level == pytest.approx(0.95)  # that of two one-sided tests
    assert (first.agreement.interval.low, first.agreement.interval.high) == pytest.approx(
        expected, abs=1e-9
    )
    assert untested.agreement is None


def test_the_interval_of_a_study_with_looks_has_the_level_of_the_look(plant: Plant) -> None:
    frames = plant({})
    looks = {"seeds": [6, 12, 18], "taken": [6], "since": "2000-01-01T00:00:00+00:00"}
    record = type(frames.record).model_validate_json(
        json.dumps(frames.record.to_json() | {"looks": looks})
    )
    found = contrast_of(replace(frames, record=record))
    assert found.agreement.interval.level == pytest.approx(1 - Looks((6, 12, 18)).level(0.05))


def test_contrasts_of_several_metrics_are_one_family_with_a_direction_and_a_margin_each(
    plant: Plant,
) -> None:
    frames = plant(
        {"name": "match"}, {"name": "loss", "metric": "test/loss", "expect": None}, gap=0.1
    )
    margins = {"test/loss": {"value": 1e-6, "since": "2000-01-01T00:00:00+00:00"}}
    record = type(frames.record).model_validate_json(
        json.dumps(frames.record.to_json() | {"margins": margins})
    )
    family = Analysis(replace(frames, record=record)).families.declared
    match, loss = family.contrasts
    assert family.tested == 2
    assert (match.metric, match.verdict, match.judgement.size_test) == (
        "test/exact_match",
        "better",
        None,
    )
    assert (loss.metric, loss.judgement.size_test.margin) == ("test/loss", 1e-6)
    assert loss.direction == ("better" if loss.paired.mean < 0 else "worse")


@case_table(("seeds", "verdict"), [(3, "undecided"), (6, "agrees")], default=1)
def test_equal_differences_in_all_seeds_agree_only_with_enough_seeds(
    seeds: int, verdict: str, plant: Plant
) -> None:
    """Each seed differs by exactly 0.4: the t-test is undefined, and a sign test requires six seeds."""
    frames = plant({}, seeds=seeds, score=lambda axes, _: 0.9 if "rotary" in axes.values() else 0.5)
    assert contrast_of(frames).agreement.verdict == verdict


@case_table("expected", [expect(), expect("equal", 0.9)], default=1)
def test_a_single_seed_is_undecided(expected: dict[str, Any], plant: Plant) -> None:
    assert (
        contrast_of(plant({"expect": expected}, seeds=1, gap=0.3)).agreement.verdict == "undecided"
    )


def test_missing_seeds_are_undecided_unless_partial_is_allowed(plant: Plant) -> None:
    frames = plant({}, gap=0.1, states={("rotary", 2): "DIVERGED"})
    found = contrast_of(frames)
    assert (found.agreement.verdict, found.agreement.interval) == ("undecided", None)
    assert "1 diverged of 6 seeds" in found.reason
    assert contrast_of(frames, allow_partial=True).agreement.verdict == "agrees"


def test_head_ablations_are_read_from_the_run_directory(plant: Plant) -> None:
    frames = plant(HEADS)
    for number, run in enumerate(frames.rows("rotary").index):
        metrics = {
            "heads/cross/only-one/loss": 0.9 + 0.01 * number,
            "heads/encoder/only-one/loss": 0.1 + 0.02 * number,
        }
        record = {
            "format": 1,
            "split": "test",
            "whole": {"loss": 1.0},
            "heads": [],
            "metrics": metrics,
        }
        (frames.folders[run] / "heads.json").write_text(json.dumps(record))
        record_checksums(frames.folders[run])
    found = contrast_of(load_frames(frames.directory))
    assert found.agreement.verdict == "agrees"
    assert found.paired.mean == pytest.approx(0.8 - 0.01 * 2.5)
    assert found.direction == "larger"  # a larger effect of masking is no worse model


def test_scores_of_some_lengths_are_averaged_over_their_sentences(plant: Plant) -> None:
    """Buckets are 1-5, 6-8, 9-11 and 12-14 with 88, 97, 45 and 20 sentences."""
    frames = plant(
        {
            "variant": "sinusoidal",
            "lengths": [9, 14],
            "against_lengths": [1, 8],
            "expect": expect("lower"),
        }
    )
    found = contrast_of(frames)
    table = frames.buckets[frames.buckets["run"] == frames.rows("sinusoidal").index[0]]
    scores = dict(zip(table["low"], table["exact_match"], strict=True))
    long, short = (45 * scores[9] + 20 * scores[12]) / 65, (88 * scores[1] + 97 * scores[6]) / 185
    assert found.paired.mean == pytest.approx(long - short)
    assert found.agreement.verdict == "agrees"


@pytest.mark.slow
def test_agreements_have_at_most_the_stated_error_rate() -> None:
    """2,000 simulated studies of eight seeds with differences at the threshold of each rule: at most 5 % are wrong."""
    random = np.random.default_rng(11)
    wrong = {"higher": 0, "direction": 0, "equal": 0}
    for _ in range(2000):
        noise = random.normal(0, 0.02, size=8)

        def found(
            shift: float, direction: str, by: float = 0.0, noise: np.ndarray = noise
        ) -> Agreement:
            expected = Expectation.model_validate(expect(direction, by))
            return agreement(expected, paired_differences(noise + shift), 0.05)

        wrong["higher"] += found(0.0, "higher").verdict != "undecided"
        wrong["direction"] += found(0.0, "higher", 0.05).direction != "undetected"
        wrong["equal"] += found(0.05, "equal", 0.05).verdict == "agrees"
    assert max(wrong.values()) / 2000 < 0.065


@pytest.mark.parametrize(("direction", "verdict"), [("equal", "agrees"), ("higher", "disagrees")])
def test_a_contrast_that_is_the_same_by_construction_has_an_agreement(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, direction: str, verdict: str
) -> None:
    monkeypatch.setattr(Frames, "trained", lambda self, slug: "sinusoidal")
    found = contrast_of(plant({"expect": expect(direction, 0.1)}))
    assert (found.verdict, found.agreement and found.agreement.verdict) == (
        "same by construction",
        verdict,
    )


@pytest.mark.parametrize("gap", [-0.008, 0.008])
@pytest.mark.parametrize("is_exchanged", [False, True])
def test_a_difference_has_one_verdict_in_all_families(
    plant: Plant, gap: float, is_exchanged: bool
) -> None:
    """Of three declared contrasts, Holm's factor is another than of the two variants."""
    others = [
        {"name": f"{k}", "variant": "none", "metric": k, "expect": None}
        for k in ("test/loss", "valid/loss")
    ]
    sides = {"variant": "sinusoidal", "against": "rotary"} if is_exchanged else {}
    found = Analysis(
        plant({"expect": None} | sides, *others, {"name": "again", "expect": None}, gap=gap)
    ).families
    (declared, *_, again), variant = found.declared.contrasts, found.variants.contrasts[0]
    assert (again.variant, variant.variant, found.declared.tested) == ("rotary", "rotary", 3)
    assert (
        variant.judgement
        == again.judgement
        == declared.judgement.signed(-1.0 if is_exchanged else 1.0)
    )
    assert variant.judgement.interval
    assert variant.paired
    assert variant.judgement.interval.low < variant.paired.mean < variant.judgement.interval.high
    assert variant.direction == ("better" if gap > 0 else "worse")
    assert found.variants.contrasts[1].judgement.holm_p != declared.judgement.holm_p
