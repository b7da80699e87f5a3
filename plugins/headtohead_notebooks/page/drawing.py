"""Pictures as HTML and SVG without scripts; every text of the data is escaped."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.figures.style import themed, to_svg

WIDTH, HEIGHT = 180, 16
"""Size of the drawing of an interval, in SVG units."""


def draw(picture: Mapping[str, Any]) -> Markup:
    """Return a picture as an HTML figure."""
    body = _KINDS[str(picture["kind"])](picture)
    return Markup('<figure class="tiny">{}<figcaption>{}</figcaption></figure>').format(body, picture["note"])


def interval(low: float, mean: float, high: float, ends: tuple[float, float]) -> Markup:
    """Return an SVG of a mean and its interval on an axis, with a mark at 0.

    Args:
        low: Lower end of the interval; not finite if there is no interval.
        mean: The mean.
        high: Upper end of the interval.
        ends: Ends of the axis; numbers beyond them are clipped.
    """
    start, end = ends
    size = end - start or 1.0

    def x(value: float) -> float:
        return 4 + (WIDTH - 8) * min(1.0, max(0.0, (value - start) / size))

    middle = HEIGHT / 2
    parts = [f'<line x1="4" y1="{middle}" x2="{WIDTH - 4}" y2="{middle}" class="axis"/>']
    if start <= 0 <= end:
        parts.append(f'<line x1="{x(0):.1f}" y1="1" x2="{x(0):.1f}" y2="{HEIGHT - 1}" class="zero"/>')
    if math.isfinite(low) and math.isfinite(high):
        parts.append(f'<line x1="{x(low):.1f}" y1="{middle}" x2="{x(high):.1f}" y2="{middle}" class="bar"/>')
    if math.isfinite(mean):
        parts.append(f'<circle cx="{x(mean):.1f}" cy="{middle}" r="3.5" class="dot"/>')
    label = f"{mean:.3g}, from {low:.3g} to {high:.3g}"
    return Markup(
        f'<svg class="interval" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


def _strips(picture: Mapping[str, Any]) -> Markup:
    panels = [_strip_panel(panel, bool(picture.get("grid"))) for panel in picture["panels"]]
    return Markup('<div class="maps">{}</div>').format(Markup().join(panels))


def _strip_panel(panel: Mapping[str, Any], grid: bool) -> Markup:
    title = Markup("<h5>{}</h5>").format(panel["title"]) if panel["title"] else Markup()
    rows = Markup().join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            row["label"], _cells(row["cells"], "td" if grid else "span")
        )
        for row in panel["rows"]
    )
    kind = "strips grid" if grid else "strips"
    return Markup('<div>{}<div class="scroll"><table class="{}">{}</table></div></div>').format(title, kind, rows)


def _cells(cells: Sequence[Mapping[str, Any]], tag: str) -> Markup:
    boxes = [_box(cell) for cell in cells]
    if tag == "span":
        return Markup("<td>{}</td>").format(Markup(" ").join(boxes))
    return Markup().join(Markup("<td>{}</td>").format(box) for box in boxes)


def _box(cell: Mapping[str, Any]) -> Markup:
    marks = [str(cell["mark"])] if cell["mark"] else []
    if cell.get("hue") is not None:
        marks.append(f"hue{int(cell['hue']) % 8 + 1}")
    note = Markup("<small>{}</small>").format(cell["note"]) if cell.get("note") else Markup()
    return Markup('<span class="box {}">{}{}</span>').format(" ".join(marks), cell["text"] or Markup("&nbsp;"), note)


def _heat(picture: Mapping[str, Any]) -> Markup:
    maps = [
        HeatMap(
            np.array([[float(cell["shade"]) for cell in row] for row in panel["cells"]]),
            picture["rows"],
            picture["columns"],
            panel["title"],
            [[cell["text"] for cell in row] for row in panel["cells"]],
        )
        for panel in picture["panels"]
    ]
    salt = hashlib.sha256(repr(picture).encode()).hexdigest()
    return Markup('<div class="scroll">{}</div>').format(Markup(themed(to_svg(heat_map_figure(maps), salt))))


def _bars(picture: Mapping[str, Any]) -> Markup:
    rows = Markup().join(_bar(bar) for bar in picture["bars"])
    return Markup('<table class="bars">{}</table>').format(rows)


def _bar(bar: Mapping[str, Any]) -> Markup:
    parts = Markup().join(
        Markup('<span class="part{}" style="width:{}%" title="{}"></span>').format(
            index, f"{100 * float(part['share']):.2f}", part["name"]
        )
        for index, part in enumerate(bar["parts"])
    )
    first = bar["parts"][0]
    share = Markup("{} % {}").format(f"{100 * float(first['share']):.1f}", first["name"])
    return Markup('<tr><th scope="row">{}</th><td><div class="bar">{}</div></td><td>{}</td></tr>').format(
        bar["label"], parts, share
    )


_KINDS: dict[str, Callable[[Mapping[str, Any]], Markup]] = {"strips": _strips, "heat": _heat, "bars": _bars}
