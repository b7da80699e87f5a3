"""Pictures written as SVG by hand: the same bytes for the same numbers, legible at any size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from headtohead.figures.style import FONTS, GRID, INK, MUTED, PALETTE, PAPER

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
"""Positive and negative, as in the pages of h2h trace."""
LEVELS = 24
"""Steps of a colour scale: fewer than the last bits of an arithmetic could tell apart."""
HIDDEN = "#eceef1"
WIDTH = 320
"""Of a picture, in points: one stands beside another on a screen, below it on a phone."""
EDGE = 12

Values = Sequence[Sequence[float | None]]


@dataclass(frozen=True)
class Scale:
    """Numbers to colours: white at 0, or at ``low`` where nothing is negative.

    Args:
        low: Smallest number; below 0 the scale has two colours, and equal ends.
        high: Largest number.
    """

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, share: bool = False) -> Scale:
        """Return the scale that shows all of these numbers."""
        low, high = min(values, default=0.0), max(values, default=0.0)
        if low < -1e-9 * max(1.0, abs(high)):
            most = max(-low, high)
            return cls(-most, most if high > 1e-9 * most else 0.0)
        return cls(0.0, high if high > 0 and not (share and high > 0.999) else 1.0)

    def colour(self, value: float) -> str:
        """Return the colour of a number."""
        ink = BLUE if value >= 0 else ORANGE
        most = self.high if value >= 0 else -self.low
        amount = round(LEVELS * min(1.0, abs(value) / most)) / LEVELS if most else 0.0
        return "#" + "".join(f"{round(255 + (part - 255) * amount):02x}" for part in ink)

    def ticks(self) -> list[float]:
        """Return the numbers that its bar names."""
        return sorted({self.low, 0.0, self.high})


def picture(width: float, height: float, parts: Iterator[str] | Sequence[str], words: str) -> str:
    """Return a whole picture on white, with a sentence for those who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-label="{escape(words)}" '
        f'font-family="{FONTS}" font-size="10" fill="{INK}">'
        f'<rect width="{_n(width)}" height="{_n(height)}" rx="6" fill="{PAPER}"/>'
        f"{''.join(parts)}</svg>\n"
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 10,
    anchor: str = "start",
    colour: str = INK,
    bold: bool = False,
    turned: bool = False,
) -> str:
    """Return words at a place; ``turned`` writes them upwards."""
    marks = [f'x="{_n(x)}" y="{_n(y)}"']
    marks += [f'font-size="{_n(size)}"'] if size != 10 else []
    marks += [f'text-anchor="{anchor}"'] if anchor != "start" else []
    marks += [f'fill="{colour}"'] if colour != INK else []
    marks += ['font-weight="600"'] if bold else []
    marks += [f'transform="rotate(-90 {_n(x)} {_n(y)})"'] if turned else []
    return f"<text {' '.join(marks)}>{escape(words)}</text>"


def wrapped(x: float, y: float, words: str, letters: int, *, size: float = 10, colour: str = INK) -> tuple[str, float]:
    """Return words broken into lines of at most so many letters, and where they end."""
    lines: list[str] = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    step = size * 1.35
    parts = [text(x, y + step * place, line, size=size, colour=colour) for place, line in enumerate(lines)]
    return "".join(parts), y + step * len(lines)


def cells(x: float, y: float, side: float, values: Values, scale: Scale) -> str:
    """Return a heat map: one path for each colour, and white lines between cells of some size.

    None is a cell without a number: hidden.
    """
    groups: dict[str, list[str]] = {}
    for row, numbers in enumerate(values):
        colours = [HIDDEN if value is None else scale.colour(value) for value in numbers]
        column = 0
        for colour, alike in itertools.groupby(colours):
            wide = len(list(alike))
            groups.setdefault(colour, []).append(f"M{column} {row}h{wide}v1h-{wide}z")
            column += wide
    paths = "".join(f'<path fill="{colour}" d="{"".join(squares)}"/>' for colour, squares in sorted(groups.items()))
    rows, columns = len(values), len(values[0])
    lines = "".join(f"M{place} 0v{rows}" for place in range(1, columns))
    lines += "".join(f"M0 {place}h{columns}" for place in range(1, rows))
    between = f'<path d="{lines}" stroke="{PAPER}" stroke-width="{_n(0.6 / side)}"/>' if side > 5 else ""
    frame = f'<rect width="{columns}" height="{rows}" fill="none" stroke="{MUTED}" stroke-width="{_n(0.7 / side)}"/>'
    return (
        f'<g transform="translate({_n(x)} {_n(y)}) scale({_n(side)})">'
        f'<g shape-rendering="crispEdges">{paths}</g>{between}{frame}</g>'
    )


def colour_bar(x: float, y: float, width: float, scale: Scale, words: str) -> str:
    """Return a scale as a bar with its ends named, 30 points high."""
    steps = 2 * LEVELS if scale.low < 0 < scale.high else LEVELS
    size = width / steps
    parts = []
    for step in range(steps):
        value = scale.low + (scale.high - scale.low) * (step + 0.5) / steps
        parts.append(
            f'<rect x="{_n(x + step * size)}" y="{_n(y)}" width="{_n(size + 0.3)}" height="7" '
            f'fill="{scale.colour(value)}"/>'
        )
    parts.append(
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="7" fill="none" '
        f'stroke="{MUTED}" stroke-width="0.6"/>'
    )
    span = scale.high - scale.low
    for tick in scale.ticks():
        place = x + width * (tick - scale.low) / span
        anchor = "start" if tick == scale.low else "end" if tick == scale.high else "middle"
        parts.append(text(place, y + 18, number(tick), size=9, anchor=anchor))
    parts.append(text(x + width + 10, y + 7.5, words, size=9.5, colour=MUTED))
    return "".join(parts)


def curve(points: Sequence[tuple[float, float]], colour: str, width: float = 1.6) -> str:
    """Return a line through points, broken nowhere."""
    d = "".join(f"{'L' if place else 'M'}{_n(x)} {_n(y)}" for place, (x, y) in enumerate(points))
    return f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="{_n(width)}" stroke-linejoin="round"/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = GRID, width: float = 0.8) -> str:
    """Return a straight line."""
    return f'<path d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}" stroke="{colour}" stroke-width="{_n(width)}"/>'


def box(x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0) -> str:
    """Return a filled box with rounded corners."""
    faint = f' fill-opacity="{_n(opacity)}"' if opacity != 1 else ""
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="2" fill="{colour}"{faint}/>'


def hue(place: int) -> str:
    """Return the colour of the n-th of several things."""
    return PALETTE[place % len(PALETTE)]


def number(value: float) -> str:
    """Return a number with two digits that count, and a true minus."""
    if value == 0:
        return "0"
    shown = f"{value:.2g}"
    if "e" in shown:
        shown = f"{value:.0f}" if abs(value) >= 1 else f"{value:.1e}"
    return shown.replace("-", "−")


def _n(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
