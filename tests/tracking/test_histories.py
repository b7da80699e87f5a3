"""Thinned histories keep the shape of curves and cause no duplicates in replay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headtohead.tracking.histories import final_points, thinned
from headtohead.tracking.rundirs import MetricPoint


@given(st.integers(0, 3000), st.integers(1, 400))
def test_a_thinned_history_is_short_ordered_and_keeps_both_ends(length: int, most: int) -> None:
    points = [MetricPoint(step, step, float(step)) for step in range(length)]
    thin = thinned(points, most)
    assert len(thin) <= most + 1
    assert thin == sorted(thin)
    assert thin[:1] == points[:1]
    assert thin[-1:] == points[-1:]


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_points_of_the_final_history_are_among_those_shipped_during_training(length: int, more: int) -> None:
    points = [MetricPoint(step, step, 0.0) for step in range(length + more)]
    early, late = set(thinned(points[:length], 50)), set(thinned(points, 50))
    assert {point for point in late if point.step < length - 1} <= early


def test_final_values_are_logged_at_the_last_step() -> None:
    histories = {"valid/loss": [MetricPoint(50, 1, 0.3), MetricPoint(100, 2, 0.5)]}
    metrics = {"valid/loss": 0.3, "test/bleu": 40.0, "test/chrf": None}
    assert final_points(metrics, histories, ended=9) == {
        "valid/loss": MetricPoint(100, 9, 0.3),
        "test/bleu": MetricPoint(100, 9, 40.0),
    }


def test_a_final_value_that_ends_its_history_is_not_logged_twice() -> None:
    histories = {"valid/loss": [MetricPoint(100, 2, 0.5)]}
    finals = final_points({"valid/loss": 0.5}, histories, ended=9)
    assert finals == {"valid/loss": MetricPoint(100, 2, 0.5)}
