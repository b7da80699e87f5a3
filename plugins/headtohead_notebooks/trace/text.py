"""A trace as plain text: a line for each step, followed by its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from headtohead_judge.layout import table_lines
from headtohead_notebooks.trace.examples import number
from headtohead_notebooks.trace.steps import Trace, TraceStep

MAX_ROWS = 12
MAX_COLUMNS = 9
OMITTED = "…"
"""Stands for omitted rows or columns."""


def as_text(trace: Trace) -> str:
    """Return the whole trace, with a title, the sentences and the notes first."""
    lines = [trace.title]
    lines.append(f"source: {trace.source}")
    lines.append(f"target: {trace.target}")
    lines.extend(trace.notes)
    lines.append("")
    for step in trace:
        lines.append(_step(step))
    return "\n".join(lines)


def plain_formula(formula: str) -> str:
    """Return a formula without the braces around subscripts and superscripts.

    >>> plain_formula("A = e^{x} W_Q")
    'A = e^x W_Q'
    """
    return re.sub(r"([_^])\{([^}]*)\}", r"\1\2", formula)


def _step(step: TraceStep) -> str:
    """Return name, shape and description of a step, its values, and an empty line."""
    shape = "×".join(str(size) for size in step.values.shape)
    descriptions = []
    if step.formula:
        descriptions.append(plain_formula(step.formula))
    if step.meaning:
        descriptions.append(step.meaning)
    description = "; ".join(descriptions)
    lines = [f"{step.name}  [{shape}]  {description}"]
    for line in _table(step):
        lines.append(f"  {line}")
    if step.example:
        lines.append(f"  {plain_formula(step.example)}")
    lines.append("")
    return "\n".join(lines)


def _table(step: TraceStep) -> Iterator[str]:
    """Return the lines of the values of a step: a row for each id with its remark, or a matrix."""
    if step.values.ndim == 1:
        return _id_table(step)
    columns = step.shown_columns(MAX_COLUMNS)
    table: list[list[str]] = []
    if step.columns:
        header = [""]
        for column in columns:
            header.append(OMITTED if column is None else step.columns[column])
        table.append(header)
    for row in step.shown_rows(MAX_ROWS):
        if row is None:
            empty_cells = [""] * len(columns)
            table.append([OMITTED, *empty_cells])
            continue
        cells = [step.rows[row]]
        for column in columns:
            cells.append(OMITTED if column is None else _number(step.values[row, column]))
        table.append(cells)
    return table_lines(table[0], table[1:], right=range(1, len(columns) + 3))


def _id_table(step: TraceStep) -> Iterator[str]:
    table = []
    for row in step.shown_rows(MAX_ROWS):
        if row is None:
            table.append([OMITTED, "", ""])
            continue
        remark = step.remarks[row] if step.remarks else ""
        table.append([step.rows[row], str(step.values[row]), remark])
    return table_lines(table[0], table[1:], right=range(1, 3))


def _number(value: Any) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    return number(float(value))
