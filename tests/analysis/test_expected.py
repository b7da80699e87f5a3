"""Planted expected results: every agreement if the runs support it, and none if they cannot."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.agreement import agreement
from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.report.answer import answer
from headtohead.schema.experiment_file import Expectation
from headtohead.storage.frames import Frames, load_frames
from headtohead_judge.paired_tests import Interval
from made import case_table
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


def with_record(frames: Frames, changes: Mapping[str, Any]) -> Frames:
    """Return frames with other fields of ``experiment.json``."""
    record = type(frames.record).model_validate_json(
        json.dumps(frames.record.to_json() | dict(changes))
    )
    return replace(frames, record=record)


def contrast_of(frames: Frames, **options: Any) -> ContrastResult:
    (found,) = Analysis(frames, **options).families.declared.contrasts
    assert found.agreement is not None
    return found


@case_table(
    ("expected", "gap", "words"),
    [
        (expect(), 0.1, "agrees: higher"),
        (expect(), -0.1, "disagrees: lower"),
        (expect(), 0.0, "undecided: no difference shown"),
        (expect("lower"), -0.1, "agrees: lower"),
        (expect(by=0.05), 0.1, "agrees: higher by more than 0.05"),
        (expect(by=0.05), 0.02, "disagrees: higher by less than 0.05"),
        (expect(by=0.05), 0.05, "undecided: higher"),
        (expect(by=0.05), 0.0, "disagrees: equal to within 0.05"),
        (expect(by=0.05), -0.1, "disagrees: lower by more than 0.05"),
        (expect("lower", 0.05), -0.05, "undecided: lower"),
        (expect("equal", 0.05), 0.0, "agrees: equal to within 0.05"),
        (expect("equal", 0.05), 0.02, "agrees: higher by less than 0.05"),
        (expect("equal", 0.05), 0.1, "disagrees: higher by more than 0.05"),
        (expect("equal", 0.001), 0.0, "undecided: no difference shown"),
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
    better, brackets = answer(Analysis(plant({}, gap=0.1)))
    assert better.startswith("C: exact match improves, +0.100 (")
    assert better.endswith("), as expected.")
    assert brackets == "In brackets: the 95 % confidence interval of the difference."
    worse, _ = answer(Analysis(plant({}, gap=-0.1)))
    assert worse.startswith("C: exact match worsens, −0.100 (")
    assert worse.endswith("), unlike the expected result.")
    undecided, _ = answer(Analysis(plant({})))
    assert undecided.startswith("C: no difference in exact match shown, ")
    assert undecided.endswith(" worse, which leaves the expected result open.")


def test_expected_results_have_the_interval_of_the_verdict_also_with_looks(plant: Plant) -> None:
    """The expected size is just inside, or just outside, the interval of the verdict."""
    others = {"name": "other", "expect": None, "variant": "none"}
    frames = plant({"expect": expect()}, others, gap=0.03)
    first, other = Analysis(frames).families.declared.contrasts
    assert other.agreement is None
    assert first.judgement.interval is not None
    low = first.judgement.interval.low
    looks = {"seeds": [6, 12, 18], "taken": [6], "since": "2000-01-01T00:00:00+00:00"}
    for by, changes, verdict in (
        (low - 1e-6, {}, "agrees"),
        (low + 1e-6, {}, "undecided"),
        (low - 1e-6, {"looks": looks}, "undecided"),
    ):
        contrasts = frames.record.to_json()["contrasts"]
        for contrast in contrasts:
            if contrast.get("expect"):
                contrast["expect"] = expect(by=by)
        changed = with_record(frames, {"contrasts": contrasts, **changes})
        found, _ = Analysis(changed).families.declared.contrasts
        assert found.agreement is not None
        assert found.agreement.verdict == verdict


def test_contrasts_of_several_metrics_are_one_family_with_a_direction_and_a_margin_each(
    plant: Plant,
) -> None:
    frames = plant(
        {"name": "match"}, {"name": "loss", "metric": "test/loss", "expect": None}, gap=0.1
    )
    margins = {"test/loss": {"value": 1e-6, "since": "2000-01-01T00:00:00+00:00"}}
    family = Analysis(with_record(frames, {"margins": margins})).families.declared
    match, loss = family.contrasts
    assert family.tested == 2
    assert (match.metric, match.verdict, match.judgement.margin) == (
        "test/exact_match",
        "better",
        None,
    )
    assert (loss.metric, loss.judgement.margin) == ("test/loss", 1e-6)
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
    assert str(found.agreement) == "undecided: no verdict"
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


@case_table(
    ("interval", "expected", "words"),
    [
        ((0.05, 0.05), expect(by=0.05), "undecided: higher"),
        ((0.06, 0.06), expect(by=0.05), "agrees: higher by more than 0.05"),
        ((0.01, 0.06), expect(by=0.05), "undecided: higher"),
        ((-0.01, 0.04), expect(by=0.05), "disagrees: equal to within 0.05"),
        ((-0.05, 0.04), expect("equal", 0.05), "undecided: no difference shown"),
    ],
    default=5,
)
def test_every_word_is_read_off_the_interval(
    interval: tuple[float, float], expected: dict[str, Any], words: str
) -> None:
    expectation = Expectation.model_validate(expected)
    assert str(agreement(expectation, Interval(*interval))) == words


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
    """Two declared contrasts that vary have wider intervals than the one variant that does."""
    others = [
        {"name": f"{k}", "variant": "none", "metric": k, "expect": None}
        for k in ("test/loss", "valid/loss")
    ]
    sides = {"variant": "sinusoidal", "against": "rotary"} if is_exchanged else {}
    found = Analysis(
        plant({"expect": None} | sides, *others, {"name": "again", "expect": None}, gap=gap)
    ).families
    (declared, *_, again), variant = found.declared.contrasts, found.variants.contrasts[0]
    assert (again.variant, variant.variant, found.declared.tested) == ("rotary", "rotary", 2)
    assert (
        variant.judgement
        == again.judgement
        == declared.judgement.signed(-1.0 if is_exchanged else 1.0)
    )
    assert variant.judgement.interval
    assert variant.paired
    assert variant.judgement.interval.low < variant.paired.mean < variant.judgement.interval.high
    assert variant.direction == ("better" if gap > 0 else "worse")
    assert found.variants.contrasts[1].level > declared.level
