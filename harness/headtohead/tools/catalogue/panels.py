"""The kinds of pictures that entries are shown by, each from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headtohead.figures.style import GRID, MUTED
from headtohead.tools.catalogue import svg
from headtohead.tools.catalogue.svg import EDGE, WIDTH, Scale, Values

SMALL = 150
"""Width of the picture that stands for an entry on the wall."""


@dataclass(frozen=True)
class Heat:
    """One or more heat maps under one title, with one scale for all.

    ``maps`` are a name and rows of numbers each, None for cells that are hidden.
    """

    title: str
    maps: Sequence[tuple[str, Values]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_axis: str
    column_axis: str
    unit: str
    scale: Scale | None = None
    signs: tuple[str, str] | None = None
    """Names of the colour of 1 and of the empty one, instead of a scale."""

    def chosen_scale(self) -> Scale:
        if self.scale is not None:
            return self.scale
        return Scale.of([one for _, rows in self.maps for row in rows for one in row if one is not None])

    def draw(self) -> str:
        """Return the picture."""
        scale = self.chosen_scale()
        across = 1 if len(self.maps) == 1 else 2
        words = max((len(one) for one in self.rows), default=0)
        margin = EDGE + 14 + 5.3 * words
        gap = 12
        room = (WIDTH - margin - EDGE - gap * (across - 1)) / across
        side = min(room / len(self.columns), 18.0)
        height_of_map = side * len(self.rows)
        parts = [svg.text(EDGE, 20, self.title, size=12.5, bold=True)]
        top = 30.0
        down = -(-len(self.maps) // across)
        for place, (name, values) in enumerate(self.maps):
            x = margin + (place % across) * (side * len(self.columns) + gap)
            y = top + (place // across) * (height_of_map + 20)
            if name:
                parts.append(svg.text(x, y + 10, name, size=9.5, colour=MUTED))
            y += 14
            parts.append(svg.cells(x, y, side, values, scale))
            if place % across == 0:
                parts += self._row_names(x, y, side)
            if place // across == down - 1:
                parts += self._column_names(x, y + height_of_map, side)
        bottom = top + down * (height_of_map + 20) - 6 + self._column_room()
        middle = top + 14 + (down * (height_of_map + 20) - 20) / 2
        parts.append(svg.text(EDGE + 3, middle, self.row_axis, size=9.5, anchor="middle", colour=MUTED, turned=True))
        parts.append(svg.text(margin, bottom + 8, self.column_axis, size=9.5, colour=MUTED))
        parts.append(self._legend(margin, bottom + 18, scale))
        return svg.picture(WIDTH, bottom + 46, parts, f"{self.title}: {self.unit}")

    def _row_names(self, x: float, y: float, side: float) -> list[str]:
        step = _every(len(self.rows), side, self.rows)
        return [
            svg.text(x - 4, y + side * (place + 0.5) + 3, name, size=9, anchor="end")
            for place, name in enumerate(self.rows)
            if place % step == 0
        ]

    def _column_names(self, x: float, y: float, side: float) -> list[str]:
        step = _every(len(self.columns), side, self.columns)
        turned = self._turned()
        return [
            svg.text(x + side * (place + 0.5) + 3, y + 4, name, size=9, anchor="end", turned=True)
            if turned
            else svg.text(x + side * (place + 0.5), y + 11, name, size=9, anchor="middle")
            for place, name in enumerate(self.columns)
            if place % step == 0
        ]

    def _turned(self) -> bool:
        return max((len(name) for name in self.columns), default=0) > 2

    def _column_room(self) -> float:
        longest = max((len(name) for name in self.columns), default=0)
        return 8 + 5.2 * longest if self._turned() else 16

    def _legend(self, x: float, y: float, scale: Scale) -> str:
        if self.signs is None:
            return svg.colour_bar(x, y, 110, scale, self.unit)
        seen, hidden = self.signs
        second = x + 26 + 5.4 * len(seen)
        return "".join(
            (
                svg.box(x, y, 9, 9, scale.colour(1.0)),
                svg.text(x + 13, y + 8, seen, size=9.5),
                svg.box(second, y, 9, 9, svg.HIDDEN),
                svg.text(second + 13, y + 8, hidden, size=9.5),
            )
        )

    def thumbnail(self) -> str:
        """Return the first map alone."""
        values = self.maps[0][1]
        side = min((SMALL - 16) / len(values[0]), (SMALL - 16) / len(values))
        left = (SMALL - side * len(values[0])) / 2
        return svg.cells(left, 30, side, values, self.chosen_scale())

    def four(self, top: float, room: float) -> str:
        """Return up to four maps in a square, small."""
        shown = self.maps[:4]
        across = 1 if len(shown) == 1 else 2
        rows, columns = len(self.rows), len(self.columns)
        side = (room - 4 * (across - 1)) / across / max(rows, columns)
        left = (SMALL - room) / 2
        return "".join(
            svg.cells(
                left + (place % across) * (side * columns + 4),
                top + (place // across) * (side * rows + 4),
                side,
                values,
                self.chosen_scale(),
            )
            for place, (_, values) in enumerate(shown)
        )


@dataclass(frozen=True)
class Lines:
    """Curves over whole numbers, with their names beside each other below."""

    title: str
    places: Sequence[int]
    curves: Sequence[tuple[str, Sequence[float | None]]]
    axis: str
    unit: str

    def draw(self) -> str:
        """Return the picture."""
        left, right, top, height = EDGE + 34.0, WIDTH - EDGE, 34.0, 150.0
        values = [value for _, one in self.curves for value in one if value is not None]
        low, high = min([*values, 0.0]), max([*values, 0.0])
        if high - low < 1e-9:
            low, high = low - 1, high + 1
        room = 0.06 * (high - low)
        low, high = low - room, high + room

        def x(place: float) -> float:
            first, last = self.places[0], self.places[-1]
            return left + (right - left) * (place - first) / (last - first)

        def y(value: float) -> float:
            return top + height * (high - value) / (high - low)

        parts = [svg.text(EDGE, 20, self.title, size=12.5, bold=True)]
        for tick in _ticks(low, high):
            parts.append(svg.line(left, y(tick), right, y(tick), MUTED if tick == 0 else GRID))
            parts.append(svg.text(left - 5, y(tick) + 3, svg.number(tick), size=9, anchor="end"))
        for place in self.places:
            if place % 5 == 0:
                parts.append(svg.line(x(place), top + height, x(place), top + height + 4, MUTED))
                words = str(place).replace("-", "−")
                parts.append(svg.text(x(place), top + height + 14, words, size=9, anchor="middle"))
        for index, (_, curve) in enumerate(self.curves):
            drawn = [(x(p), y(v)) for p, v in zip(self.places, curve, strict=True) if v is not None]
            parts.append(svg.curve(drawn, svg.hue(index)))
        base = top + height + 28
        parts.append(svg.text(left, base, self.axis, size=9.5, colour=MUTED))
        parts.append(
            svg.text(EDGE + 3, top + height / 2, self.unit, size=9.5, anchor="middle", colour=MUTED, turned=True)
        )
        here, base = left, base + 16
        for index, (name, _) in enumerate(self.curves):
            if not name:
                continue
            wide = 24 + 5.4 * len(name)
            if here + wide > right:
                here, base = left, base + 14
            parts.append(svg.line(here, base - 3, here + 12, base - 3, svg.hue(index), 2.2))
            parts.append(svg.text(here + 16, base, name, size=9.5))
            here += wide
        return svg.picture(WIDTH, base + EDGE, parts, f"{self.title}: {self.unit} by {self.axis}")


@dataclass(frozen=True)
class Heads:
    """The geometry of one attention, drawn to scale: a box for each head, as wide as it is."""

    title: str
    rows: Sequence[tuple[str, Sequence[tuple[float, int]]]]
    """A name, and for each head its width and the number of the group that it belongs to."""
    note: str
    model_width: float

    def draw(self) -> str:
        """Return the picture."""
        left = EDGE + 52.0
        unit = self._unit(WIDTH - left - EDGE)
        parts = [svg.text(EDGE, 20, self.title, size=12.5, bold=True)]
        y = 34.0
        for name, heads in self.rows:
            parts.append(svg.text(left - 6, y + 13, name, size=9.5, anchor="end"))
            parts += self._boxes(left, y, unit, 18, heads)
            y += 25
        end = left + unit * self.model_width
        parts.append(svg.text(left - 6, y + 8, "d", size=9.5, anchor="end"))
        parts.append(svg.line(left, y + 5, end, y + 5, MUTED, 1.2))
        parts += [svg.line(one, y + 1, one, y + 9, MUTED, 1.2) for one in (left, end)]
        words, y = svg.wrapped(EDGE, y + 28, self.note, 56, size=9.5, colour=MUTED)
        parts.append(words)
        return svg.picture(WIDTH, y + 2, parts, f"{self.title}: {self.note}")

    def _unit(self, room: float) -> float:
        widest = max([sum(width for width, _ in heads) for _, heads in self.rows] + [self.model_width])
        return room / widest

    def _boxes(
        self, left: float, y: float, unit: float, height: float, heads: Sequence[tuple[float, int]]
    ) -> list[str]:
        parts, x = [], left
        for width, group in heads:
            size = unit * width
            drawn = max(size - 1.5, 0.8)
            parts.append(svg.box(x, y, drawn, height, svg.hue(group), opacity=0.85))
            x += size
        return parts or [svg.text(left, y + height - 5, "none", size=9.5, colour=MUTED)]

    def thumbnail(self, height: float = 36) -> str:
        """Return the boxes alone, small, above a line as long as the model is wide."""
        unit = self._unit(SMALL - 16)
        each = height / len(self.rows)
        boxes = "".join(
            "".join(self._boxes(8, 29 + each * place, unit, each - 2, heads))
            for place, (_, heads) in enumerate(self.rows)
            if heads
        )
        end, y = 8 + unit * self.model_width - 1, 31 + height
        ends = "".join(svg.line(x, y - 2.5, x, y + 2.5, MUTED) for x in (8, end))
        return boxes + svg.line(8, y, end, y, MUTED) + ends


@dataclass(frozen=True)
class Words:
    """A sentence where there is nothing to draw."""

    title: str
    words: str

    def draw(self) -> str:
        """Return the picture."""
        shown, bottom = svg.wrapped(EDGE, 42, self.words, 52, size=10.5, colour=MUTED)
        parts = [svg.text(EDGE, 20, self.title, size=12.5, bold=True), shown]
        return svg.picture(WIDTH, max(bottom + 4, 70), parts, f"{self.title}: {self.words}")


Panel = Heat | Lines | Heads | Words


def card(name: str, inside: str, caption: str) -> str:
    """Return the picture that stands for an entry on the wall."""
    parts = [
        svg.text(SMALL / 2, 19, name, size=12 if len(name) < 19 else 10.5, anchor="middle", bold=True),
        inside,
        svg.text(SMALL / 2, SMALL + 30, caption, size=9, anchor="middle", colour=MUTED),
    ]
    return svg.picture(SMALL, SMALL + 40, parts, f"{name}: {caption}")


def _every(count: int, side: float, names: Sequence[str]) -> int:
    """Return how many names to go on from one that is shown: numbers may be left out."""
    if all(name.isdigit() for name in names):
        return 5 if count > 10 else 1
    return 1 if side >= 8.5 else 2


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round numbers between two ends."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * place for place in range(first, last + 1)]
