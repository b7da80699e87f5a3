"""A trace as plain text: a line for each step, followed by its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from headtohead_judge.output import aligned
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


def _table(step: TraceStep) -> Iterator[str]:
    is_list = step.values.ndim == 1
    columns = [] if is_list else step.shown_columns(MAX_COLUMNS)
    cells: list[list[str]] = []
    if step.columns:
        cells.append(["", *("…" if column is None else step.columns[column] for column in columns)])
    for row in step.shown_rows(MAX_ROWS):
        if row is None:
            cells.append(["…", *("" for _ in columns or ("id", "remark"))])
        elif is_list:
            cells.append(
                [step.rows[row], str(step.values[row]), step.remarks[row] if step.remarks else ""]
            )
        else:
            values = (
                "…" if column is None else _number(step.values[row, column]) for column in columns
            )
            cells.append([step.rows[row], *values])
    return aligned(cells, right=range(1, len(columns) + 3))


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, np.bool_) else number(float(value))
