"""Metrics for MLflow: histories with at most some hundred points, and final values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headtohead.tracking.rundirs import MetricPoint

MAX_POINTS = 300


def thinned(points: list[MetricPoint], limit: int = MAX_POINTS) -> list[MetricPoint]:
    """Return every 2^k-th point, including the first and the last.

    The stride is a power of two, so that the points of a shorter history are also points of a longer history: a run
    that is logged during training has the same points as a run that is logged at its end.
    """
    stride = 1
    while len(points) > limit * stride:
        stride *= 2
    selected = points[::stride]
    if points and selected[-1] != points[-1]:
        selected.append(points[-1])
    return selected


def missing(points: Iterable[MetricPoint], logged: Sequence[MetricPoint]) -> list[MetricPoint]:
    """Return the points that MLflow does not have yet.

    A step that a resumed run repeats has the time of its first line, and is not logged again, even if its value on a
    GPU differs in the last digits. A point with another time, as after ``--fresh``, is logged if its value differs.
    """
    times = {(point.step, point.time) for point in logged}
    values = {(point.step, point.value) for point in logged}
    return [
        point for point in points if (point.step, point.time) not in times and (point.step, point.value) not in values
    ]


def final_points(
    metrics: Mapping[str, float | None], histories: dict[str, list[MetricPoint]], ended: int
) -> dict[str, MetricPoint]:
    """Return the final metrics as points at the last step of the run.

    MLflow displays the value with the highest step, and of equal steps the latest. With these points its table shows
    the results of the report, even if the best checkpoint is not the last. A final value that equals the last point
    of its history keeps that point.
    """
    last = max((points[-1].step for points in histories.values() if points), default=0)
    finals = {}
    for name, value in metrics.items():
        end = histories.get(name, [])[-1:]
        if end and (end[0].step, end[0].value) == (last, value):
            finals[name] = end[0]
        elif value is not None:
            finals[name] = MetricPoint(last, ended, float(value))
    return finals
