"""A trace as one page to teach from: no script from elsewhere, readable without a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from headtohead.tools.trace.matrix import LEVELS, matrix_html
from headtohead.tools.trace.steps import Step, Trace
from headtohead.tools.trace.tree import OUTPUT, Part, as_tree

FEW = 60
"""Steps up to which every part is shown open."""

MANY = 3
"""Layers up to which the map shows what is in them."""

LEGEND = (
    "Each table is one matrix: a row for each token, with its name. Blue is positive, orange "
    "negative, the fuller the larger, measured by the largest number of the table; shares are "
    "coloured from 0 to 1, weights that can be negative from −1. Where a matrix is too wide, … "
    "stands for what is left out, and its true size is given above it. Grey cells hold −∞ or "
    "numbers as large as a billion: masks. Below a table, one cell is computed by hand."
)

SCRIPT = """
if (innerWidth < 900) document.querySelector("nav details").open = false;
const show = () => {
  const there = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = there; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
  if (there) there.scrollIntoView();
};
addEventListener("hashchange", show);
show();
"""
"""Opens the parts around what a link leads to, and closes the contents on a small screen.

Without it the page is still whole.
"""


def as_html(trace: Trace) -> str:
    """Return the whole page."""
    parts = as_tree(trace)
    title = escape(trace.title)
    open_all = len(trace.steps) <= FEW
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}: one forward pass</title><style>{_style()}</style></head>\n<body>"
        f"<header><p class=kind>One forward pass, step by step</p><h1>{title}</h1>"
        f"{_pair(trace)}{_notes(trace.notes)}</header>\n"
        f"<nav><details open><summary>Contents</summary>{_contents(parts)}</details></nav>\n"
        f"<main><p class=legend>{escape(LEGEND)}</p>{_map(parts, trace.hears_source)}"
        f"{''.join(_part(part, open_all) for part in parts)}</main>\n"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def formula_html(formula: str) -> str:
    """Return a formula with what stands below and above the line set there.

    >>> formula_html("S' = Q K^T / √d_k < 10^{−4}")
    "S&#x27; = Q K<sup>T</sup> / √d<sub>k</sub> &lt; 10<sup>−4</sup>"
    """
    text = escape(formula)
    for mark, tag in (("_", "sub"), (r"\^", "sup")):
        text = re.sub(mark + r"(?:\{([^}]*)\}|(\w))", rf"<{tag}>\1\2</{tag}>", text)
    return text


def _pair(trace: Trace) -> str:
    return (
        f"<dl><dt>source</dt><dd>{escape(trace.source)}</dd>"
        f"<dt>the decoder reads</dt><dd>{escape(trace.target)}</dd></dl>"
    )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul class=notes>{items}</ul>" if items else ""


def _contents(parts: Sequence[Part]) -> str:
    items = "".join(
        f'<li><a href="#{part.path}">{escape(part.heading)}</a>{_contents(part.parts)}</li>' for part in parts
    )
    return f"<ul>{items}</ul>" if items else ""


def _map(parts: Sequence[Part], hears_source: bool) -> str:
    """Return the parts as boxes from input to output, each a link."""
    columns: list[str] = []
    for side in parts:
        boxes = [_box(_first(side), side.heading, "box side")]
        for part in side.parts:
            inside = part.parts if len(side.parts) <= MANY else []
            boxes += [_box(small.path, f"{part.heading}: {small.heading}") for small in inside] or [
                _box(part.path, part.heading)
            ]
        if side.path == OUTPUT and columns:
            columns[-1] = columns[-1].replace("</div>", f"{boxes[0]}</div>")
            continue
        if side.path == "encoder":
            read = "read by the decoder →" if hears_source else "read by nobody"
            boxes.append(f"<p>{read}</p>")
        columns.append(f"<div>{''.join(boxes)}</div>")
    return f"<div class=map>{''.join(columns)}</div>"


def _box(path: str, text: str, kind: str = "box") -> str:
    return f'<a class="{kind}" href="#{path}">{escape(text)}</a>'


def _first(side: Part) -> str:
    """Return the name of the first step of a side, or its path where that has none."""
    first = side.items[0]
    return first.name if isinstance(first, Step) else side.path


def _part(part: Part, open_all: bool) -> str:
    content = "".join(_part(item, open_all) if isinstance(item, Part) else _steps(item) for item in part.runs())
    is_open = " open" if open_all or _is_first(part) else ""
    return (
        f'<details class=d{part.depth} id="{part.path}"{is_open}><summary>'
        f"<h{part.depth + 1}>{escape(part.heading)}</h{part.depth + 1}>"
        f"<code>{part.path}</code></summary>{content}</details>\n"
    )


def _is_first(part: Part) -> bool:
    """Tell whether a part is open from the start: sides, and the first of layers and heads."""
    words = part.path.split(".")
    return len(words) == 1 or all(word == "0" for word in words if word.isdigit())


def _steps(steps: Sequence[Step]) -> str:
    return f"<div class=steps>{''.join(map(_step, steps))}</div>"


def _step(step: Step) -> str:
    shape = " × ".join(str(size) for size in step.shape)
    formula = f"<p class=formula>{formula_html(step.formula)}</p>" if step.formula else ""
    example = f"<p class=example>{formula_html(step.example)}</p>" if step.example else ""
    heading = f'<a href="#{step.name}">{escape(step.title)}</a> <span>{shape}</span>'
    return (
        f'<section id="{step.name}"><h6>{heading}</h6>{formula}<p class=says>{escape(step.says)}'
        f"</p><div class=wide>{matrix_html(step)}</div>{example}</section>"
    )


def _style() -> str:
    fixed = files("headtohead.tools.trace").joinpath("page.css").read_text(encoding="utf-8")
    scales = {"p": (31, 99, 158), "n": (196, 98, 16), "s": (31, 99, 158)}
    return fixed + "".join(
        _shade(f"{letter}{level}", ink, level / LEVELS) for letter, ink in scales.items() for level in range(LEVELS + 1)
    )


def _shade(name: str, ink: tuple[int, int, int], amount: float) -> str:
    """Return the rule of a cell: the ink thinned by white, and letters that stand out on it."""
    red, green, blue = (round(255 + (part - 255) * amount) for part in ink)
    letters = "#fff" if amount > 0.55 else "#1d2733"
    return f".heat .{name}{{background:rgb({red} {green} {blue});color:{letters}}}"
