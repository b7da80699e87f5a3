"""Planted training curves: which variants are still learning, and how many steps a difference equals."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.convergence import LossTrend, RunTrend, run_trend
from headtohead.analysis.findings import rules
from headtohead.analysis.study import Analysis
from headtohead.config.builder import resolve
from headtohead.planning.schedule import averaging_interval, decays_to_an_end, learning_rate
from headtohead.plugins.registry import current
from headtohead.report.content import Report
from headtohead.report.differences import differences
from headtohead.report.writing import write_files
from headtohead.schema.run_config import TrainConfig
from made import case_table
from made.fake_study import with_losses

Loss = Callable[[str, int, int], float | None]
"""Validation loss by variant, seed and step."""

STEPS = 1000


@pytest.fixture
def plant(analysed: Callable[..., Analysis]) -> Callable[..., Analysis]:
    """Return a function that returns the analysis of two encodings with these losses, evaluated at ``steps``."""

    def write(
        loss: Loss,
        steps: Sequence[int] = tuple(range(100, STEPS + 1, 100)),
        schedule: str = "inverse-sqrt",
        scores: Mapping[str, float] | None = None,
        final_lr: float = 0.0,
        passes: float | None = None,
        stopped_early: bool = False,
        **options: Any,
    ) -> Analysis:
        frames = analysed(
            axes={"positional": ["sinusoidal", "rotary"]},
            score=lambda axes, seed: (
                (scores or {}).get(axes["positional"], 0.5) + 0.001 * (seed * 7 % 5)
            ),
            config=lambda axes: {
                "train": {"schedule": {"name": schedule, "options": {"final_lr": final_lr}}}
            },
            steps=STEPS,
            one_at_a_time=True,
            **options,
        ).frames
        frames = with_losses(frames, loss, steps)
        frames = replace(frames, runs=frames.runs.assign(stopped_early=stopped_early))
        if passes is not None:
            epochs = frames.histories["step"] / STEPS * passes
            frames = replace(frames, histories=frames.histories.assign(epoch=epochs))
        return Analysis(frames)

    return write


def falling(fall: float, noise: float = 0.0) -> Loss:
    """Return losses from 3 at step 0 that fall by ``fall`` nats in every 200 steps."""

    def loss(variant: str, seed: int, step: int) -> float:
        wobble = (
            np.random.default_rng([len(variant), seed, step]).normal(0, noise) if noise else 0.0
        )
        return 3 - fall * step / 200 + float(wobble)

    return loss


def trend_of(analysis: Analysis) -> LossTrend:
    return analysis.convergence.trends["rotary"]


@case_table(
    ("fall", "verdict"),
    [(0.1, "still learning"), (0.02, "levelled off"), (0.0, "levelled off"), (-0.1, "rising")],
    default=2,
)
def test_a_change_of_more_than_one_percent_is_a_fall_or_a_rise(
    fall: float, verdict: str, plant: Any
) -> None:
    trend = trend_of(plant(falling(fall)))
    assert trend.verdict == verdict
    assert trend.fall == pytest.approx(fall)
    assert trend.loss == pytest.approx(3 - 4 * fall)


def test_noise_over_seeds_is_not_called_learning(plant: Any) -> None:
    def loss(variant: str, seed: int, step: int) -> float:
        slope = 0.4 if seed == 3 else -0.02
        return 3 - slope * step / 200

    trend = trend_of(plant(loss))
    assert trend.fall > 0.04
    assert (trend.verdict, trend.reason) == ("not judged", "the change differs too much over seeds")


def test_opposite_changes_of_the_seeds_are_not_called_flat(plant: Any) -> None:
    def loss(variant: str, seed: int, step: int) -> float:
        slope = {1: 0.4, 2: -0.4}.get(seed, 0.0)
        return 3 - slope * step / 200

    trend = trend_of(plant(loss))
    assert abs(trend.fall) < 0.01
    assert (trend.verdict, trend.reason) == ("not judged", "the change differs too much over seeds")


def test_noisy_evaluations_are_fitted_by_a_line(plant: Any) -> None:
    """A single evaluation has a standard deviation of 0.05; 21 of them estimate the fall of 0.1 to about 0.02."""
    trend = trend_of(plant(falling(0.1, noise=0.05), steps=range(10, STEPS + 1, 10)))
    assert trend.verdict == "still learning"
    assert trend.fall == pytest.approx(0.1, abs=0.04)


@case_table(
    ("steps", "reason"),
    [
        ((1000,), "fewer than two evaluations"),
        ((500, 1000), "too few evaluations near the end"),
        ((850, 900, 1000), "too few evaluations near the end"),
        ((60, 80, 99), "fewer than 100 steps"),
        ((), "no finished run with a validation loss"),
    ],
    default=2,
)
def test_few_evaluations_are_not_judged(steps: Sequence[int], reason: str, plant: Any) -> None:
    trend = trend_of(plant(falling(0.1), steps=steps))
    assert (trend.verdict, trend.reason) == ("not judged", reason)


@case_table("steps", [(800, 1000), (790, 810, 1000), (700, 850, 1000)], default=1)
def test_evaluations_around_the_start_of_the_last_fifth_are_enough(
    steps: Sequence[int], plant: Any
) -> None:
    assert trend_of(plant(falling(0.1), steps=steps)).verdict == "still learning"


def test_every_second_of_ten_evaluations_has_the_fall_of_all_ten(plant: Any) -> None:
    """A line through three points at equal distances has the slope between the outer two."""
    noisy = falling(0.1, noise=0.05)
    ten = trend_of(plant(noisy))
    five = trend_of(plant(noisy, steps=range(200, STEPS + 1, 200)))
    assert five.verdict == ten.verdict
    assert five.fall == pytest.approx(ten.fall)


@pytest.mark.parametrize("steps", range(100, 140))
def test_the_rounding_of_a_fifth_of_the_steps_leaves_enough_evaluations(steps: int) -> None:
    interval = 2 * averaging_interval(TrainConfig(), steps)
    evaluated = np.array([*range(interval, steps, interval), steps])
    trend = run_trend(evaluated, 3 - evaluated / 1000)
    assert isinstance(trend, RunTrend)
    assert trend.fall == pytest.approx(steps / 5000)


def test_unfinished_runs_and_missing_losses_do_not_count(plant: Any) -> None:
    def loss(variant: str, seed: int, step: int) -> float | None:
        return (
            None
            if seed == 2 and step == 900
            else 3 - 0.1 * step / 200 - (0.4 * step / 200 if seed == 1 else 0)
        )

    trend = trend_of(plant(loss, states={("rotary", 1): "FAILED", ("rotary", 4): "DIVERGED"}))
    assert trend.n == 4
    assert trend.fall == pytest.approx(0.1)


@case_table(("better", "named"), [(0.07, True), (-0.07, False)], default=2)
def test_a_gap_of_the_better_score_with_the_lower_loss_is_given_in_steps_of_the_baseline(
    better: float, named: bool, plant: Any
) -> None:
    """The baseline falls by 0.1 nats in 200 steps, so 0.07 nats are 140 steps."""

    def loss(variant: str, seed: int, step: int) -> float:
        return 3 - 0.1 * step / 200 - (better if variant == "rotary" else 0.0)

    analysis = plant(loss, scores={"rotary": 0.6})
    found = analysis.convergence
    assert ([gap.agrees for gap in found.gaps], found.smallest_gap is not None) == ([named], named)
    assert [gap.steps for gap in found.gaps] == pytest.approx([140])
    (line,) = [
        remark.text for remark in rules.find(analysis) if remark.text.startswith("Still learning")
    ]
    assert ("about 140 steps" in line) == named


def test_exactly_the_schedules_with_a_final_rate_reach_it_at_the_last_step() -> None:
    def train(**schedule: object) -> TrainConfig:
        fields = {"steps": 100, "warmup_steps": 0, "lr": 0.01, "schedule": schedule}
        return resolve({"train": fields}).train

    ending = set()
    for name, registered in current().entries["schedule"].items():
        if "final_lr" in registered.entry.Options.model_fields:
            ending.add(name)
            config = train(name=name, final_lr=0.002)
            assert learning_rate(config, 100, 100) == pytest.approx(0.002)
            assert decays_to_an_end(config)
            assert not decays_to_an_end(train(name=name, final_lr=0.01))
        else:
            assert learning_rate(train(name=name), 100, 100) > 0
            assert not decays_to_an_end(train(name=name))
    assert ending == {"cosine", "wsd"}


@case_table("schedule", ["cosine", "wsd"], default=2)
def test_a_flat_end_of_a_decaying_schedule_is_no_verdict(schedule: str, plant: Any) -> None:
    analysis = plant(falling(0.0), schedule=schedule)
    assert trend_of(analysis).verdict == "schedule ended"
    (line,) = [remark.text for remark in rules.find(analysis) if "schedule ended" in remark.text]
    assert f"rate that decays ({schedule}) flattens the validation loss" in line
    assert (
        trend_of(plant(falling(0.0), schedule=schedule, stopped_early=True)).verdict
        == "levelled off"
    )
    assert trend_of(plant(falling(0.1), schedule=schedule)).verdict == "still learning"


def test_a_schedule_with_a_positive_final_rate_decays(plant: Any) -> None:
    analysis = plant(falling(0.0), schedule="cosine", final_lr=1e-4)
    assert analysis.convergence.decaying == ("cosine to 0.0001",)
    assert trend_of(analysis).verdict == "schedule ended"


@case_table(
    ("passes", "bigram", "severity", "words"),
    [
        (
            0.14,
            0.3,
            "caution",
            ["after 0.14 passes", "but not lower than that of a bigram model (0.300)"],
        ),
        (
            12.0,
            0.3,
            "caution",
            ["after 12 passes", "but not lower than that of a bigram model (0.300)"],
        ),
        (0.14, 0.9, "caution", ["after 0.14 passes", "lower than that of a bigram model (0.900)"]),
        (12.0, 0.9, "note", ["after 12 passes", "lower than that of a bigram model (0.900)"]),
    ],
    default=4,
)
def test_the_end_of_a_schedule_is_a_caution_before_a_pass_or_without_a_loss_below_the_bigrams(
    passes: float, bigram: float, severity: str, words: list[str], plant: Any
) -> None:
    """The made-up test loss of an exact match of 0.5 is 0.5 nats."""
    tables = {"losses_without_model": {"unigram": 5.0, "bigram": bigram}}
    analysis = plant(falling(0.0), schedule="cosine", passes=passes, data=tables)
    (found,) = [
        remark for remark in rules.find(analysis) if remark.text.startswith("The schedule ended")
    ]
    assert found.severity == severity
    assert [text for text in words if text not in found.text] == []


@pytest.mark.usefixtures("without_figures")
def test_the_limit_is_beside_the_answer_and_the_line_among_the_details(
    plant: Any, tmp_path: Path
) -> None:
    paths = write_files(
        Report(plant(falling(0.1, noise=1e-9))), tmp_path
    )  # runs of equal losses have a warning
    text = paths.markdown.read_text(encoding="utf-8")
    line = next(line for line in paths.lines if line.startswith("Still learning"))
    answer = text.index("**" + paths.answer[:20])
    limit = text.index("training ended before any variant levelled off")
    assert answer < limit < text.index("## ") < text.index(line[:60])
    record = json.loads(paths.json.read_text(encoding="utf-8"))
    assert record["remarks"][0] == {
        "rule": "still_learning",
        "severity": "caution",
        "variants": ["sinusoidal", "rotary"],
        "text": line,
        "limit": "training ended before any variant levelled off",
    }
    assert record["training"]["still_learning"]
    assert record["training"]["variants"]["rotary"]["fall"] == pytest.approx(0.1)
    assert record["answer"] == paths.answer


@case_table(("fall", "states_steps"), [(0.1, True), (0.0, False)], default=2)
def test_a_claim_on_runs_that_still_learn_states_the_trained_steps(
    fall: float, states_steps: bool, plant: Any
) -> None:
    expect = {"direction": "higher", "by": 0.0, "published": None, "source": "A. Author 2018"}
    sides = {"name": "c", "variant": "rotary", "against": "sinusoidal"}
    (row,) = differences(
        plant(falling(fall), scores={"rotary": 0.6}, declared=[sides | {"expect": expect}])
    )
    text = row["contrast"]
    assert "agrees with the expected result" in text
    assert ("with the expected result after 1,000 steps" in text) == states_steps


@case_table(
    ("learning", "words", "limit"),
    [
        (
            ["none", "rotary"],
            "the validation loss of rotary and without positions fell by",
            "before 2 of 3 variants levelled off",
        ),
        (
            ["rotary"],
            "the validation loss of rotary fell by",
            "before a variant levelled off: rotary",
        ),
        (
            ["none"],
            "the validation loss without positions fell by",
            "before a variant levelled off: without positions",
        ),
        (
            ["sinusoidal"],
            "the validation loss of sinusoidal fell by",
            "before the baseline levelled off",
        ),
    ],
    default=4,
)
def test_a_variant_that_still_learns_is_named_as_its_phrase_requires(
    learning: Sequence[str], words: str, limit: str, analysed: Callable[..., Analysis]
) -> None:
    def loss(variant: str, seed: int, step: int) -> float:
        return 3 - 0.1 * step / 200 * (variant in learning)

    frames = analysed(axes={"positional": ["sinusoidal", "none", "rotary"]}, steps=STEPS).frames
    analysis = Analysis(with_losses(frames, loss, range(100, STEPS + 1, 100)))
    (remark,) = (found for found in rules.find(analysis) if found.rule == "still_learning")
    assert words in remark.text
    assert remark.limit == f"training ended {limit}"


def test_a_gap_on_other_data_is_not_expressed_in_steps_of_the_baseline(
    analysed: Callable[..., Analysis],
) -> None:
    def loss(variant: str, seed: int, step: int) -> float:
        return 3 - 0.1 * step / 200 + 0.1 * variant.endswith("rotary")

    frames = analysed(
        axes={"data": ["addition", "copy"], "positional": ["sinusoidal", "rotary"]}
    ).frames
    analysis = Analysis(with_losses(frames, loss, range(100, STEPS + 1, 100)))
    assert analysis.convergence.trends["addition-sinusoidal"].verdict == "still learning"
    averaged = [
        contrast
        for contrast in analysis.families.factors.contrasts
        if contrast.axis == "positional"
    ]
    assert [set(contrast.variants) for contrast in averaged] == [set(frames.by_slug)]
    assert analysis.convergence.gaps == ()
