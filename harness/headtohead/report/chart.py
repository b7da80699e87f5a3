"""The figure below the answer of a page: a table with a row per contrast, whose points and interval are drawn in it.

Positions are percentages of the width of a panel, so that the drawing fits every screen while its text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.study import Analysis
from headtohead.figures.colours import css_colour
from headtohead.figures.rows import ALL_DIFFERENCES, ZOOMED_IN, Row, magnified_range
from headtohead.report.chart_parts import Axis, Chart, ChartGroup, ChartRow, Marks, Point
from headtohead.report.differences import difference_row, shown_contrasts
from headtohead.report.figures.rows import contrast_row
from headtohead.storage.metrics import show, with_unit
from headtohead.storage.palette import Palette

MAX_TICKS = 4
"""Maximum number of intervals between the numbers below a panel."""
MAX_TICKS_OF_ALL = 2
"""The same for the narrow panel of all values beside a magnified one."""
MARGIN = 0.04
"""Distance of the marks from the edges of a panel, as a fraction of their range."""

FACTORS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
ROUND_STEPS = (*(step / 10 for step in FACTORS), *FACTORS, 10.0)
"""Steps between round numbers in ascending order, times a power of ten."""

SIDES = {True: ("worse", "better"), False: ("better", "worse"), None: ("smaller", "larger")}
"""What a difference left and right of 0 means, by whether a higher score is better."""
SEEDS = "Differences of the seeds: {differences}"


def contrast_chart(analysis: Analysis) -> Chart | None:
    """Return the chart of the `shown_contrasts`, in their order, with a group for each metric; None without any.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    contrasts = shown_contrasts(analysis)
    if not contrasts:
        return None
    by_metric: dict[str, list[ContrastResult]] = {}
    for contrast in contrasts:
        by_metric.setdefault(contrast.metric, []).append(contrast)
    groups = [_group(analysis, metric, members) for metric, members in by_metric.items()]
    return Chart(tuple(groups))


def _group(analysis: Analysis, metric: str, contrasts: Sequence[ContrastResult]) -> ChartGroup:
    """Return the group of a metric: a row per contrast, in axes that all contrasts share.

    There is a second axis if large differences hide small ones, and none if no contrast has a test. The margin is the
    largest one that a verdict of the group has; empty without one. The sides of 0 are *better* and *worse* if a
    difference has that meaning in all contrasts.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    palette = Palette(analysis.frames.record)
    margin = max(contrast.judgement.margin or 0.0 for contrast in contrasts)
    drawn: list[Row | None] = []
    for contrast in contrasts:
        has_test = contrast.paired is not None
        drawn.append(contrast_row(analysis, palette, contrast) if has_test else None)
    tested = [row for row in drawn if row is not None]
    axes = _axes(tested, margin) if tested else ()
    rows = []
    for contrast, row in zip(contrasts, drawn, strict=True):
        cells = difference_row(analysis, contrast)
        rows.append(_chart_row(contrast, cells, row, axes))
    directions = {contrast.higher_is_better for contrast in contrasts}
    direction = directions.pop() if len(directions) == 1 else None
    margin_text = show(margin, metric, like=margin) if margin else ""
    return ChartGroup(with_unit(metric), margin_text, SIDES[direction], axes, tuple(rows))


def _chart_row(
    contrast: ContrastResult, cells: dict[str, str], drawn: Row | None, axes: Sequence[Axis]
) -> ChartRow:
    """Return the row of a contrast, whose label has the difference of each seed for screen readers.

    Args:
        contrast: The contrast.
        cells: The texts of its cells, as `difference_row` returns them.
        drawn: Its points, mean and interval; None without a test, for a row without marks and label.
        axes: The axes of its group.
    """
    if drawn is None:
        return ChartRow(cells, colour="", label="", marks=())
    values = []
    for value, _ in drawn.points:
        values.append(show(value, contrast.metric, signed=True, like=contrast.scale))
    label = SEEDS.format(differences=", ".join(values))
    marks = tuple(_marks(drawn, axis) for axis in axes)
    return ChartRow(cells, css_colour(drawn.drawn_colour), label, marks)


def _axes(rows: Sequence[Row], margin: float) -> tuple[Axis, ...]:
    """Return the axis of all values, and a second one for the small differences if large ones hide them.

    Both axes contain 0 and the margin on both sides of it. ``rows`` has at least one row.
    """
    low = min(-margin, *(row.ends[0] for row in rows), 0.0)
    high = max(margin, *(row.ends[1] for row in rows), 0.0)
    if high - low < 1e-9:  # equal values up to rounding
        low, high = -1.0, 1.0
    room = MARGIN * (high - low)
    limits = magnified_range(rows, margin)
    if limits is None:
        return (_axis("", low - room, high + room, margin, MAX_TICKS),)
    return (
        _axis(ALL_DIFFERENCES, low - room, high + room, margin, MAX_TICKS_OF_ALL),
        _axis(ZOOMED_IN, *limits, margin, MAX_TICKS),
    )


def _axis(title: str, low: float, high: float, margin: float, max_ticks: int) -> Axis:
    """Return an axis from ``low`` to ``high`` with round numbers below it."""
    return Axis(title, low, high, margin, _numbers(low, high, max_ticks))


def _numbers(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return multiples of a round step between both ends, not too close to them, with at most ``most`` steps.

    The numbers are those of matplotlib's ``MaxNLocator``, whose import takes longer than a page. ``low`` is below 0 and
    ``high`` above.
    """
    smallest_step = (high - low) / most
    power = 10.0 ** math.floor(math.log10(smallest_step))
    steps = [factor * power for factor in ROUND_STEPS]
    fitting = next(number for number, step in enumerate(steps) if step >= smallest_step)
    values: list[float] = []
    for step in reversed(steps[: fitting + 1]):
        values = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(values) > 1:
            break
    room = 0.06 * (high - low)
    return tuple(value for value in values if low + room <= value <= high - room)


def _marks(row: Row, axis: Axis) -> Marks:
    """Return what a row draws in a panel.

    The points of the seeds are stacked from the top to the bottom of the row. Points outside of the panel are left out,
    and an interval is cut off at its edges (`Axis.x`). If the mean is outside, an arrow replaces mean and interval.
    """
    gaps = max(len(row.points) - 1, 1)
    points = []
    for index, (value, tip) in enumerate(row.points):
        if axis.low <= value <= axis.high:
            height = 25 + 50 * index / gaps
            points.append(Point(axis.x(value), f"{height:.0f}%", tip))
    arrow = ""
    if row.mean < axis.low:
        arrow = "left"
    elif row.mean > axis.high:
        arrow = "right"
    if arrow:
        return Marks(axis, tuple(points), interval=(), mean="", arrow=arrow)
    interval: tuple[str, str] | tuple[()] = ()
    if math.isfinite(row.low):
        interval = (axis.x(row.low), axis.x(row.high))
    return Marks(axis, tuple(points), interval=interval, mean=axis.x(row.mean), arrow="")
