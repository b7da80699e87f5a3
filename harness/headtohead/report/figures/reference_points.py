"""Draw reference points into a figure of scores."""

from __future__ import annotations

from matplotlib.axes import Axes

from headtohead.analysis.reference_points import NAMES
from headtohead.analysis.study import Analysis
from headtohead.figures import style
from headtohead.storage.metrics import show, span

LINE_POINTS = 11
"""Distance of the lines of text above the figure, in points."""


def draw_reference_points(axes: Axes, analysis: Analysis) -> None:
    """Draw the reference points of the baseline's data as ticks on the upper edge, without changing the range.

    Reference points outside the range of the scores are named at the edge that they lie beyond. A reference point with
    the smallest or largest possible score is not drawn.
    """
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points is None or analysis.metric not in points.scores["vocabulary_bound"]:
        return
    low, high = axes.get_xlim()
    least, largest = span(analysis.metric)
    values = {name: points.scores[key][analysis.metric] for key, name in NAMES.items() if key in points.scores}
    drawn = {name: value for name, value in values.items() if least < value < largest}
    for line, (name, value) in enumerate(drawn.items()):
        text, x, align = f"{name} {show(value, analysis.metric)}", (value - low) / (high - low), "center"
        if low <= value <= high:
            axes.axvline(value, color=style.MUTED, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1)
        elif value < low:
            text, x, align = f"← {text}", 0.0, "left"
        else:
            text, x, align = f"{text} →", 1.0, "right"
        axes.annotate(
            text,
            (x, 1.0),
            (0, 3 + LINE_POINTS * line),
            "axes fraction",
            "offset points",
            ha=align,
            va="bottom",
            fontsize=8,
            color=style.MUTED,
        )
    axes.set_xlim(low, high)
