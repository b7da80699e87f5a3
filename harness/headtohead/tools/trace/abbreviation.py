"""The rows and columns of a large matrix that are shown."""

from __future__ import annotations

from headtohead.tools.trace.steps import Step

Indices = list[int | None]
"""Rows or columns in order; None marks omitted ones."""


def shown_rows(step: Step, most: int) -> Indices:
    """Return the first and the last rows, at most ``most`` of them."""
    return _ends(len(step.values), most)


def shown_columns(step: Step, most: int) -> Indices:
    """Return the first and the last columns, at most ``most`` of them; the prominent ones, if any."""
    count = step.values.shape[1]
    if count <= most or not step.prominent:
        return _ends(count, most)
    return [*step.prominent, None]


def _ends(count: int, most: int) -> Indices:
    if count <= most:
        return list(range(count))
    last = most // 3
    return [*range(most - last), None, *range(count - last, count)]
