"""The largest effect of a leak on a score, against leaks of planted sizes, and when it is a warning."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headtohead.analysis.findings import rules
from headtohead.analysis.leaks import largest_effect
from headtohead.analysis.study import Analysis
from made import case_table


@case_table("metric", ["test/exact_match", "test/loss", "test/token_accuracy"], default=3)
def test_no_leak_improves_a_score_by_more_than_the_bound_and_the_best_one_reaches_it(
    metric: str,
) -> None:
    generator = np.random.default_rng(3)
    best = 0.0 if metric == "test/loss" else 1.0
    for _ in range(200):
        values = generator.uniform(0, 5 if metric == "test/loss" else 1, 50)
        size = int(generator.integers(1, 40))
        leaked = np.arange(50) < size
        improvement = abs(best - values[~leaked].mean()) - abs(best - values.mean())
        assert improvement <= largest_effect(metric, values.mean(), size / 50) + 1e-12
        values[leaked] = best
        improvement = abs(best - values[~leaked].mean()) - abs(best - values.mean())
        assert improvement == pytest.approx(largest_effect(metric, values.mean(), size / 50))


def test_with_the_whole_test_set_in_training_the_bound_is_the_distance_from_the_worst_score() -> (
    None
):
    assert largest_effect("test/exact_match", 0.9, 1.0) == 0.9
    assert largest_effect("test/loss", 0.9, 1.0) == float("inf")


def leak_remark(analysis: Analysis) -> tuple[str, str]:
    (found,) = [
        remark for remark in rules.find(analysis) if remark.text.startswith(("LEAKY", "Leak"))
    ]
    return found.severity, found.text


@case_table(
    ("share", "margin", "severity", "start", "end"),
    [
        (0.007, None, "caution", "Leak: 0.7 %", "by at most 0.004."),
        (0.05, None, "warning", "LEAKY split: 5.0 %", "by at most 0.027."),
        (
            0.05,
            0.03,
            "caution",
            "Leak: 5.0 %",
            "by at most 0.027, not more than the margin of 0.030.",
        ),
        (
            0.05,
            0.02,
            "warning",
            "LEAKY split: 5.0 %",
            "by at most 0.027, more than the margin of 0.020.",
        ),
        (
            0.007,
            0.002,
            "warning",
            "LEAKY split: 0.7 %",
            "by at most 0.004, more than the margin of 0.002.",
        ),
    ],
    default=5,
)
def test_a_leak_is_a_warning_if_its_effect_can_exceed_the_margin(
    share: float,
    margin: float | None,
    severity: str,
    start: str,
    end: str,
    analysed: Callable[..., Analysis],
) -> None:
    """The worst mean, 0.5, can contain s / (1 - s) * 0.5 of the leak, rounded up."""
    data: dict[str, Any] = {"leak": share, "leaked_shares": {"examples": share, "tokens": share}}
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"]},
        score=lambda axes, seed: 0.5 + 0.1 * (axes["positional"] == "rotary"),
        data=data,
        margin=margin,
        one_at_a_time=True,
    )
    middle = " of the test sources are in training; it improves exact match "
    assert leak_remark(analysis) == (severity, start + middle + end)


def test_the_bound_of_a_score_that_is_no_mean_over_examples_is_that_of_the_loss(
    analysed: Callable[..., Analysis],
) -> None:
    data: dict[str, Any] = {"leak": 0.007, "leaked_shares": {"examples": 0.007, "tokens": 0.01}}
    analysis = analysed(
        axes={"positional": ["sinusoidal", "rotary"]},
        score=lambda axes, seed: 0.5,
        data=data,
        primary="test/bleu",
        one_at_a_time=True,
    )
    severity, text = leak_remark(analysis)
    assert severity == "caution"
    assert text.endswith(
        "it improves test loss by at most 0.006."
    )  # 1 / 99 of 0.5 nats, rounded up
