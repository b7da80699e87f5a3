"""How pictures look: one colour per axis value, told apart by all, the same bytes each time."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headtohead.analysis.frames import Frames
from headtohead.analysis.metrics import label

INK, MUTED, GRID, PAPER = "#1f2328", "#667080", "#e3e6ea", "#ffffff"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6f9b", "#8c8c8c")
"""Okabe and Ito's colours, without the yellow that vanishes on white, and two quiet ones."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
WIDTH = 9.6
"""Inches: the text column of the page at 96 dots per inch is a little over 1,000 points wide."""

_NUMBERED = re.compile(
    r'id="(?:figure|axes|patch|line2d|text|xtick|ytick|matplotlib\.axis|legend|PathCollection|'
    r'FillBetweenPolyCollection|LineCollection)_\d+"'
)
"""Ids that matplotlib counts up and nothing refers to; several figures share a page."""

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "path.simplify": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the project's style while a figure is built."""
    with matplotlib.rc_context(_RC):
        yield


def to_svg(figure: Figure, salt: str) -> str:
    """Return the figure as an SVG element whose bytes depend on nothing but what it shows.

    ``salt`` keeps the ids of several figures on one page apart. Artists whose gid was set by
    `tip` carry their text as a title that browsers show on hovering.
    """
    with matplotlib.rc_context({**_RC, "svg.hashsalt": salt}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = _NUMBERED.sub("", text)
    text = re.sub(r"'DejaVu Sans'(?:, [^;\"]+)?", FONTS, text)
    tips: Mapping[str, str] = getattr(figure, "tips", {})
    for gid, words in tips.items():
        text = text.replace(f'<g id="{gid}">', f"<g><title>{escape(words)}</title>", 1)
    return text


def to_png(figure: Figure, dots_per_inch: int = 144) -> bytes:
    """Return the figure as a PNG on white."""
    with matplotlib.rc_context(_RC):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dots_per_inch, facecolor=PAPER,
                       metadata={"Software": None})  # fmt: skip
    return buffer.getvalue()


def themed(svg: str) -> str:
    """Return the SVG with its colours as CSS variables, for a page that may be dark."""
    names = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}
    names |= {colour: f"c{index}" for index, colour in enumerate(PALETTE, 1)}
    pattern = re.compile("|".join(names))
    return pattern.sub(lambda found: f"var(--{names[found[0]]}, {found[0]})", svg)


def tip(figure: Figure, artist: Any, words: str) -> None:
    """Give an artist a text that browsers show on hovering."""
    tips: dict[str, str] = figure.__dict__.setdefault("tips", {})
    gid = f"tip-{len(tips)}"
    tips[gid] = words
    artist.set_gid(gid)


def bare_left(axes: Axes) -> None:
    """Leave only what a row chart needs: rows named on the left, no frame, vertical grid."""
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


@dataclass(frozen=True)
class Palette:
    """Colours and marks of an experiment's variants, the same in every picture.

    The axis with the most values (the first of them) that has no more than there are colours gives
    the colour, the others together give the mark; where a design has no such grid, every variant
    has a colour of its own.
    """

    frames: Frames

    @cached_property
    def values(self) -> dict[str, list[str]]:
        """The values of each axis that occur, the baseline's first, then in order of the design."""
        first = self.frames.variants[self.frames.baseline]["axes"]
        found = {axis: [label(first.get(axis))] for axis in self.frames.axes}
        for variant in self.frames.variants.values():
            for axis, column in found.items():
                value = label(variant["axes"].get(axis))
                if value not in column:
                    column.append(value)
        return found

    @cached_property
    def colour_axis(self) -> str | None:
        """The axis that colours stand for, or None where every variant has its own."""
        if not self.frames.axes or not self.is_grid:
            return None
        sizes = {axis: len(self.values[axis]) for axis in self.frames.axes}
        told_apart = {axis for axis, size in sizes.items() if 1 < size <= len(PALETTE)}
        return max((a for a in sizes if a in told_apart or not told_apart), key=sizes.__getitem__)

    @cached_property
    def is_grid(self) -> bool:
        """Whether values of different axes are combined with one another."""
        declared = self.frames.experiment.get("contrasts", [])
        return any(contrast["kind"] == "factor" for contrast in declared)

    def colour(self, slug: str) -> str:
        """Return the variant's colour."""
        if self.colour_axis is None:
            return PALETTE[list(self.frames.variants).index(slug) % len(PALETTE)]
        return self.value_colour(label(self.frames.variants[slug]["axes"].get(self.colour_axis)))

    def value_colour(self, value: str) -> str:
        """Return the colour of a value of the colour axis."""
        assert self.colour_axis is not None
        return PALETTE[self.values[self.colour_axis].index(value) % len(PALETTE)]

    def legend(self, slugs: Sequence[str]) -> dict[str, str]:
        """Return what the colours of these variants stand for, in order of the design."""
        named = {self.line_name(slug): self.colour(slug) for slug in slugs}
        if self.colour_axis is None:
            return named
        return {value: named[value] for value in self.values[self.colour_axis] if value in named}

    def panel(self, slug: str) -> str:
        """Return what is left of a variant's name when the colour has spoken."""
        if self.colour_axis is None:
            return ""
        words = self._words(slug)
        return " · ".join(words[axis] for axis in self.frames.axes if axis != self.colour_axis)

    def _words(self, slug: str) -> dict[str, str]:
        """Return a variant's values by axis, each as its title words it (``match parameters``)."""
        variant = self.frames.variants[slug]
        parts = str(variant["title"]).split(" · ")
        if len(parts) != len(self.frames.axes):
            parts = [label(variant["axes"].get(axis)) for axis in self.frames.axes]
        return dict(zip(self.frames.axes, parts, strict=True))

    @cached_property
    def panels(self) -> list[str]:
        """The panels in order of the design."""
        return list(dict.fromkeys(self.panel(slug) for slug in self.frames.variants))

    def marker(self, slug: str) -> str:
        """Return the variant's mark."""
        return MARKERS[self.panels.index(self.panel(slug)) % len(MARKERS)]

    def line_name(self, slug: str) -> str:
        """Return what a line is called where panels already carry the rest of the name."""
        variant = self.frames.variants[slug]
        if self.colour_axis is None:
            return str(variant["title"])
        return label(variant["axes"].get(self.colour_axis))


def shortened(names: Sequence[str], width: int = 58) -> list[str]:
    """Return names cut in their middle where they are too long for a row chart."""
    half = (width - 1) // 2
    return [n if len(n) <= width else f"{n[:half]}…{n[-half:]}" for n in names]
