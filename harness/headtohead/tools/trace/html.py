"""A trace as one HTML page that works without a network and without JavaScript."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from headtohead.tools.trace.matrix import LEVELS, table_of
from headtohead.tools.trace.steps import Step, Trace
from headtohead.tools.trace.tree import Part, as_tree

MAX_OPEN_STEPS = 60
"""Traces with more steps start with most parts closed."""

INKS = {"p": (31, 99, 158), "n": (196, 98, 16), "s": (31, 99, 158)}
"""Red, green and blue of positive and negative numbers and of probabilities."""


def as_html(trace: Trace) -> str:
    """Return the whole page."""
    folder = files("headtohead.tools.trace")
    environment = Environment(autoescape=True, keep_trailing_newline=True)
    return environment.from_string(folder.joinpath("page.html.j2").read_text(encoding="utf-8")).render(
        trace=trace,
        parts=as_tree(trace),
        open_all=len(trace.steps) <= MAX_OPEN_STEPS,
        css=Markup(folder.joinpath("page.css").read_text(encoding="utf-8")),
        inks=INKS,
        levels=LEVELS,
        shade=_shade,
        formula=lambda text: Markup(formula_html(text)),
        table_of=table_of,
        first_name=_first_name,
        starts_open=_starts_open,
    )


def formula_html(formula: str) -> str:
    """Return a formula with subscripts and superscripts as HTML.

    >>> formula_html("S' = Q K^T / √d_k < 10^{−4}")
    "S&#x27; = Q K<sup>T</sup> / √d<sub>k</sub> &lt; 10<sup>−4</sup>"
    """
    text = escape(formula)
    for mark, tag in (("_", "sub"), (r"\^", "sup")):
        text = re.sub(mark + r"(?:\{([^}]*)\}|(\w))", rf"<{tag}>\1\2</{tag}>", text)
    return text


def _first_name(side: Part) -> str:
    """Return the name of the first step of a side, or the side's path if it starts with a part."""
    first = side.items[0]
    return first.name if isinstance(first, Step) else side.path


def _starts_open(part: Part) -> bool:
    """Return whether a part is open at first: sides, and the first of layers and heads."""
    names = part.path.split(".")
    return len(names) == 1 or all(name == "0" for name in names if name.isdigit())


def _shade(ink: tuple[int, int, int], amount: float) -> str:
    """Return the CSS colour between white and an ink."""
    red, green, blue = (round(255 + (part - 255) * amount) for part in ink)
    return f"rgb({red} {green} {blue})"
