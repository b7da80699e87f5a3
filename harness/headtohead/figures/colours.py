"""The colours of figures: a colour-blind palette, the colours of text and lines, and all as CSS variables."""

from __future__ import annotations

import re

INK = "#1f2328"
MUTED = "#667080"
GRID = "#e3e6ea"
PAPER = "#ffffff"
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6f9b", "#9a6324")
"""Okabe and Ito's colours without yellow, which is invisible on white, plus violet and brown."""

CSS_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {
    colour: f"c{number}" for number, colour in enumerate(PALETTE, 1)
}
"""The CSS variable of each colour, which has another value on a dark page."""


def css_colour(colour: str) -> str:
    """Return one of the colours of this module as a CSS value, for a page that may be dark.

    Raises:
        KeyError: If this module does not define the colour.
    """
    return f"var(--{CSS_NAMES[colour]}, {colour})"


def themed(svg: str) -> str:
    """Return the SVG with its colours as CSS variables, for a page that may be dark."""
    pattern = re.compile("|".join(CSS_NAMES))
    return pattern.sub(lambda match: css_colour(match[0]), svg)
