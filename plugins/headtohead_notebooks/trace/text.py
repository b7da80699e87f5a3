"""A trace as plain text: a line for each step, followed by its values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

from headtohead_notebooks.trace.examples import number
from headtohead_notebooks.trace.steps import Trace, TraceStep

MAX_ROWS, MAX_COLUMNS = 12, 9


def as_text(trace: Trace) -> str:
    """Return the whole trace, with a title, the sentences and the notes first."""
    head = [trace.title, f"source: {trace.source}", f"target: {trace.target}", *trace.notes]
    return "\n".join([*head, "", *(_step(step) for step in trace)])


def plain_formula(formula: str) -> str:
    """Return a formula without the braces around subscripts and superscripts.

    >>> plain_formula("A = e^{x} W_Q")
    'A = e^x W_Q'
    """
    return re.sub(r"([_^])\{([^}]*)\}", r"\1\2", formula)


def _step(step: TraceStep) -> str:
    shape = "×".join(str(size) for size in step.values.shape)
    description = "; ".join(part for part in (plain_formula(step.formula), step.meaning) if part)
    lines = [f"{step.name}  [{shape}]  {description}"]
    lines += [f"  {line}" for line in _table(step)]
    if step.example:
        lines.append(f"  {plain_formula(step.example)}")
    return "\n".join([*lines, ""])


def _table(step: TraceStep) -> list[str]:
    rows = step.shown_rows(MAX_ROWS)
    cells: list[list[str]] = []
    columns = [] if step.values.ndim == 1 else step.shown_columns(MAX_COLUMNS)
    if step.columns:
        cells.append(["", *("…" if column is None else step.columns[column] for column in columns)])
    for row in rows:
        cells.append(["…"] if row is None else _row(step, row, columns))
    return _aligned(cells)


def _row(step: TraceStep, row: int, columns: Sequence[int | None]) -> list[str]:
    if step.values.ndim == 1:
        remark = step.remarks[row] if step.remarks else ""
        return [step.rows[row], str(step.values[row]), remark]
    shown = ("…" if column is None else _cell(step, row, column) for column in columns)
    return [step.rows[row], *shown]


def _cell(step: TraceStep, row: int, column: int) -> str:
    value = step.values[row, column]
    return str(int(value)) if step.values.dtype == bool else number(float(value))


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Pad columns to equal widths, labels to the left and numbers to the right."""
    count = max(len(row) for row in cells)
    widths = [max(cell_len(row[column]) for row in cells if column < len(row)) for column in range(count)]
    lines = []
    for row in cells:
        spaces = [" " * (width - cell_len(text)) for text, width in zip(row, widths, strict=False)]
        padded = [text + spaces[0] if not column else spaces[column] + text for column, text in enumerate(row)]
        lines.append("  ".join(padded).rstrip())
    return lines
