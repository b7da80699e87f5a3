"""One step as a table of coloured cells: darker for larger numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headtohead.tools.trace.abbreviation import shown_columns, shown_rows
from headtohead.tools.trace.examples import LARGE, number
from headtohead.tools.trace.steps import Array, Step

MOST_ROWS, MOST_TOKENS, MOST_COORDINATES = 24, 24, 9
LEVELS = 9

PROBABILITIES = ("weights", "unmixed weights", "probabilities")
"""Steps coloured from 0 to 1, or from -1 if some numbers are negative."""

GAP = ("gap", "…")

Cell = tuple[str, str]
"""CSS class and text."""


@dataclass(frozen=True)
class Table:
    """A step as a page shows it: either tokens with their ids, or a matrix with names.

    An omitted token is None. ``head`` names the columns; ``rows`` are a name and cells each.
    """

    tokens: list[tuple[str, str] | None] | None = None
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, list[Cell]], ...] = ()


def table_of(step: Step) -> Table:
    """Return the table of a step."""
    rows = shown_rows(step, MOST_ROWS)
    if step.values.ndim == 1:
        below = step.remarks or tuple(map(str, step.values))
        return Table(tokens=[None if row is None else (step.rows[row], below[row]) for row in rows])
    columns = shown_columns(step, MOST_TOKENS if step.columns else MOST_COORDINATES)
    names = step.columns or tuple(map(str, range(step.values.shape[1])))
    probabilities = step.title in PROBABILITIES
    largest = 1.0 if probabilities else _largest(step.values)
    positive = "s" if probabilities and not bool((step.values < 0).any()) else "p"

    def cell(value: Array) -> Cell:
        if step.values.dtype == bool:
            return f"m{int(value)}", str(int(value))
        size = float(value)
        if not abs(size) < LARGE:
            return "x", number(size)
        level = min(LEVELS, round(LEVELS * abs(size) / largest))
        return f"{'n' if size < 0 else positive}{level}", number(size)

    return Table(
        head=tuple("…" if column is None else names[column] for column in columns),
        rows=tuple(
            ("", [GAP] * len(columns))
            if row is None
            else (step.rows[row], [GAP if column is None else cell(step.values[row, column]) for column in columns])
            for row in rows
        ),
    )


def _largest(values: Array) -> float:
    """Return the largest absolute value, ignoring infinite and masked numbers."""
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    usual = sizes[sizes < LARGE]
    return float(usual.max()) if usual.size and usual.max() > 0 else 1.0
