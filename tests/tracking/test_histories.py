"""Thinning keeps curves readable and replay free of duplicates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headtohead.tracking.histories import final_points, thinned
from headtohead.tracking.rundirs import MetricPoint


@given(st.integers(0, 3000), st.integers(1, 400))
def test_a_thinned_history_is_short_ordered_and_keeps_both_ends(length: int, most: int) -> None:
    points = [MetricPoint(step, step, float(step)) for step in range(length)]
    kept = thinned(points, most)
    assert len(kept) <= most + 1
    assert kept == sorted(kept)
    assert kept[:1] == points[:1]
    assert kept[-1:] == points[-1:]


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_points_of_the_final_history_were_not_new_when_it_was_shipped_live(length: int, more: int) -> None:
    points = [MetricPoint(step, step, 0.0) for step in range(length + more)]
    early, late = set(thinned(points[:length], 50)), set(thinned(points, 50))
    assert {point for point in late if point.step < length - 1} <= early


def test_final_values_stand_at_the_last_step_so_that_the_table_shows_them() -> None:
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
