"""What the chart of contrasts draws: its panels, rows and marks; `chart.contrast_chart` computes them.

Positions are percentages of the width of a panel, so that the drawing fits every screen while its text keeps its size.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A number below a panel."""

    x: str
    text: str


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a panel.

    Attributes:
        title: What the panel shows, if there are two; else empty.
        low: The value at its left edge.
        high: The value at its right edge.
        margin: The margin; 0 without one.
        numbers: The values with a number below the panel, all inside it.
    """

    title: str
    low: float
    high: float
    margin: float
    numbers: tuple[float, ...]

    def x(self, value: float) -> str:
        """Return the position of a value from the left, in percent; values outside are at the edge."""
        fraction = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(fraction, 0.0), 1.0):.1f}%"

    @property
    def zero(self) -> str:
        """The position of 0."""
        return self.x(0.0)

    @property
    def band(self) -> tuple[str, str] | None:
        """The left end and the width of the band from minus to plus the margin; None without a margin."""
        if not self.margin:
            return None
        left = float(self.x(-self.margin).rstrip("%"))
        right = float(self.x(self.margin).rstrip("%"))
        return f"{left:.1f}%", f"{right - left:.1f}%"

    @property
    def ticks(self) -> list[Tick]:
        """The numbers below the panel."""
        ticks = []
        for value in self.numbers:
            text = "0" if abs(value) < 1e-12 else f"{value:+.6g}"
            ticks.append(Tick(self.x(value), text.replace("-", "−")))
        return ticks


@dataclass(frozen=True)
class Point:
    """The difference of a seed: its position, its height from the top in percent, and its tooltip."""

    x: str
    y: str
    tip: str


@dataclass(frozen=True)
class Marks:
    """What a row draws in a panel: points, the ends of the interval, and the mean or an arrow to it.

    An interval or a mean that is not drawn is empty.
    """

    axis: Axis
    points: tuple[Point, ...]
    interval: tuple[str, str] | tuple[()]
    mean: str
    arrow: str
    """``left`` or ``right`` if the mean is outside of the panel on this side, else empty."""


@dataclass(frozen=True)
class ChartRow:
    """A contrast: the texts of its cells, its colour as a CSS value, and what it draws in each panel.

    The first line of ``cells["contrast"]``, ``cells["difference"]`` and ``cells["verdict"]`` is the value. A contrast
    without a test draws nothing.
    """

    cells: dict[str, str]
    colour: str
    label: str
    marks: tuple[Marks, ...]


@dataclass(frozen=True)
class ChartGroup:
    """The rows of a metric, which share their axes; ``margin`` is empty without a margin."""

    metric: str
    margin: str
    sides: tuple[str, str]
    axes: tuple[Axis, ...]
    rows: tuple[ChartRow, ...]


@dataclass(frozen=True)
class Chart:
    """The main contrasts by metric."""

    groups: tuple[ChartGroup, ...]

    @property
    def is_magnified(self) -> bool:
        """Whether a group has a second panel for its small differences."""
        return any(len(group.axes) > 1 for group in self.groups)

    @property
    def has_margin(self) -> bool:
        """Whether a panel has a band."""
        return any(axis.margin for group in self.groups for axis in group.axes)
