"""Metrics as MLflow gets them: histories thinned to some hundred points, then the final values."""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.tracking.rundirs import MetricPoint

MOST_POINTS = 300


def thinned(points: list[MetricPoint], most: int = MOST_POINTS) -> list[MetricPoint]:
    """Keep every 2^k-th point, the first and the last.

    The stride is a power of two, so that what was kept of a shorter history stays kept in a longer
    one: a run shipped while it trains does not collect other points than one shipped at its end.
    """
    stride = 1
    while len(points) > most * stride:
        stride *= 2
    kept = points[::stride]
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def final_points(
    metrics: Mapping[str, float | None], histories: dict[str, list[MetricPoint]], ended: int
) -> dict[str, MetricPoint]:
    """Return the final metrics at the last step of the run.

    MLflow shows as a metric's value the one with the highest step, then the latest: placed so, the
    table shows the results of the report, also where the best checkpoint was not the last one. A
    value that already ends its history stays the point it is.
    """
    last = max((points[-1].step for points in histories.values() if points), default=0)
    found = {}
    for key, value in metrics.items():
        end = histories.get(key, [])[-1:]
        if end and (end[0].step, end[0].value) == (last, value):
            found[key] = end[0]
        elif value is not None:
            found[key] = MetricPoint(last, ended, float(value))
    return found
