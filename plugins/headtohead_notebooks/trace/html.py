"""A trace as one HTML page that works offline and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from importlib.resources import files

import numpy as np
from markupsafe import Markup

from headtohead.escaping import content_policy, visible
from headtohead.report.render import environment
from headtohead_notebooks.trace.examples import LARGE, number
from headtohead_notebooks.trace.steps import Array, Indices, Trace, TraceStep
from headtohead_notebooks.trace.tree import as_tree

MAX_OPEN_STEPS = 60
"""Traces with more steps start with most parts closed."""

MAX_ROWS = 24
MAX_TOKENS = 24
MAX_COORDINATES = 9

LEVELS = 9
"""Number of shades besides white; a darker shade is a larger number."""

INKS = {"p": (31, 99, 158), "n": (196, 98, 16), "s": (31, 99, 158)}
"""Red, green and blue of positive numbers, negative numbers and probabilities."""

PROBABILITIES = ("weights", "unmixed weights", "probabilities")
"""Steps coloured from 0 to 1, or from -1 if some numbers are negative."""


def as_html(trace: Trace) -> str:
    """Return the whole page."""
    templates = files("headtohead_notebooks.trace").joinpath("templates")
    css = templates.joinpath("page.css").read_text(encoding="utf-8")
    script = templates.joinpath("page.js").read_text(encoding="utf-8")
    pages = environment("headtohead_notebooks.trace", html=True)
    template = pages.get_template("page.html.j2")
    page = template.render(
        trace=trace,
        parts=as_tree(trace),
        open_all=len(trace.steps) <= MAX_OPEN_STEPS,
        css=Markup(css),
        script=Markup(script),
        policy=content_policy(script),
        inks=INKS,
        levels=LEVELS,
        max_rows=MAX_ROWS,
        shade=_shade,
        formula=_formula_markup,
        shown_columns=_shown_columns,
        cell_of=_cell_function,
    )
    return visible(page)


def formula_html(formula: str) -> str:
    """Return a formula with subscripts and superscripts as HTML.

    >>> formula_html("S' = Q K^T / √d_k < 10^{−4}")
    'S&#x27; = Q K<sup>T</sup> / √d<sub>k</sub> &lt; 10<sup>−4</sup>'
    """
    text = escape(formula)
    for mark, tag in (("_", "sub"), (r"\^", "sup")):
        text = re.sub(mark + r"(?:\{([^}]*)\}|(\w))", rf"<{tag}>\1\2</{tag}>", text)
    return text


def _formula_markup(formula: str) -> Markup:
    return Markup(formula_html(formula))


def _shown_columns(step: TraceStep) -> Indices:
    """Return the columns that the page shows: more of tokens than of coordinates."""
    if step.columns:
        return step.shown_columns(MAX_TOKENS)
    return step.shown_columns(MAX_COORDINATES)


def _cell_function(step: TraceStep) -> Callable[[int, int], tuple[str, str]]:
    """Return the function from row and column of a step to CSS class and text of the cell."""
    positive_ink = "p"
    if step.title in PROBABILITIES:
        largest = 1.0
        if not (step.values < 0).any():
            positive_ink = "s"
    else:
        largest = _largest(step.values)

    def cell(row: int, column: int) -> tuple[str, str]:
        value = step.values[row, column]
        if step.values.dtype == bool:
            bit = int(value)
            return f"m{bit}", str(bit)
        shown = number(float(value))
        if not abs(value) < LARGE:  # masked, infinite or not a number
            return "x", shown
        level = min(LEVELS, round(LEVELS * abs(float(value)) / largest))
        ink = "n" if value < 0 else positive_ink
        return f"{ink}{level}", shown

    return cell


def _largest(values: Array) -> float:
    """Return the largest absolute value, ignoring infinite and masked numbers; at least 1 if all are 0."""
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    unmasked = sizes[sizes < LARGE]
    if not unmasked.any():
        return 1.0
    return float(unmasked.max())


def _shade(ink: tuple[int, int, int], amount: float) -> str:
    """Return the CSS colour between white and an ink."""
    red, green, blue = (round(255 + (part - 255) * amount) for part in ink)
    return f"rgb({red} {green} {blue})"
