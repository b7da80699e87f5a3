"""One step as a table of coloured cells: the darker, the larger."""

from __future__ import annotations

from html import escape

import numpy as np

from headtohead.tools.trace.abbreviation import Places, shown_columns, shown_rows
from headtohead.tools.trace.examples import LARGE, number
from headtohead.tools.trace.steps import Array, Step

MOST_ROWS, MOST_TOKENS, MOST_COORDINATES = 24, 24, 9
LEVELS = 9

SHARES = ("weights", "unmixed weights", "probabilities")
"""Steps whose numbers are shares of one, and are coloured from 0 to 1; from -1 if some are not."""


def matrix_html(step: Step) -> str:
    """Return the table of a step."""
    if step.values.ndim == 1:
        return _ids(step)
    rows = shown_rows(step, MOST_ROWS)
    columns = shown_columns(step, MOST_TOKENS if step.columns else MOST_COORDINATES)
    colour = _Colours(step)
    body = "".join(_gap(len(columns) + 1) if row is None else _row(step, row, columns, colour) for row in rows)
    return f"<table class=heat><thead>{_head(step, columns)}</thead><tbody>{body}</tbody></table>"


def _ids(step: Step) -> str:
    """Return tokens with their ids below, or with the words chosen for them."""
    cells = []
    for row in shown_rows(step, MOST_ROWS):
        if row is None:
            cells.append("<li class=gap>…</li>")
            continue
        below = escape(step.remarks[row]) if step.remarks else str(step.values[row])
        cells.append(f"<li><b>{escape(step.rows[row])}</b><i>{below}</i></li>")
    kind = "said" if step.remarks else "ids"
    return f"<ol class={kind}>{''.join(cells)}</ol>"


def _head(step: Step, columns: Places) -> str:
    labels = [
        "<th>…</th>" if place is None else f"<th>{escape(step.columns[place]) if step.columns else place}</th>"
        for place in columns
    ]
    return f"<tr><td></td>{''.join(labels)}</tr>"


def _row(step: Step, row: int, columns: Places, colour: _Colours) -> str:
    cells = ["<td class=gap>…</td>" if place is None else colour.cell(step.values[row, place]) for place in columns]
    return f"<tr><th>{escape(step.rows[row])}</th>{''.join(cells)}</tr>"


def _gap(width: int) -> str:
    return f"<tr><td class=gap colspan={width}>…</td></tr>"


class _Colours:
    """Gives each number of a step its class: sign, and size beside the largest of the step."""

    def __init__(self, step: Step) -> None:
        self.mask = step.values.dtype == bool
        shares = step.title in SHARES
        self.share = shares and not bool((step.values < 0).any())
        self.most = 1.0 if shares else _largest(step.values)

    def cell(self, value: Array) -> str:
        if self.mask:
            return f"<td class=m{int(value)}>{int(value)}</td>"
        return f"<td class={self._class(float(value))}>{number(float(value))}</td>"

    def _class(self, value: float) -> str:
        if not abs(value) < LARGE:
            return "x"
        level = min(LEVELS, round(LEVELS * abs(value) / self.most))
        return f"{'s' if self.share else 'n' if value < 0 else 'p'}{level}"


def _largest(values: Array) -> float:
    """Return the largest size among numbers of a usual size."""
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    usual = sizes[sizes < LARGE]
    return float(usual.max()) if usual.size and usual.max() > 0 else 1.0
