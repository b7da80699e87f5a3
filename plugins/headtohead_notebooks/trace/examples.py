"""The calculation of one cell of a matrix, with numbers rounded for display.

Each function returns a cell, or None if its formula does not give the value of the cell, as for a variant that
computes it differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headtohead_notebooks.trace.steps import Array

MAX_TERMS = 3
"""Terms of a sum that are shown before the last one."""

TOLERANCE = 1e-3

LARGE = 1e6
"""Absolute values from which a number is a masked score."""


@dataclass(frozen=True)
class CellExample:
    """One cell of a matrix and its calculation."""

    row: int
    column: int
    text: str

    def line(self, rows: Sequence[str], columns: Sequence[str]) -> str:
        """Return row and column of the cell, followed by the calculation.

        Args:
            rows: The token of each row.
            columns: The label of each column; empty if columns are coordinates.
        """
        column = f"column “{columns[self.column]}”" if columns else f"column {self.column}"
        return f"row “{rows[self.row]}”, {column}: {self.text}"


def number(value: float) -> str:
    """Return a number as text, with a true minus sign.

    >>> number(-0.12345), number(-1e9), number(float("-inf")), number(2.0)
    ('−0.123', '−1.0e9', '−∞', '2.000')
    """
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    if math.isnan(value):
        return "NaN"
    if abs(value) >= LARGE:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    digits = 3 if abs(value) < 100 else 1
    shown = f"{value:.{digits}f}"
    return shown.replace("-", "−") if float(shown) else shown.lstrip("-")


def scaled(before: Array, factor: float, after: Array) -> CellExample | None:
    """Return the product for the first cell."""
    first = float(before[0, 0])
    return _cell(0, 0, f"{number(first)} · {number(factor)}", first * factor, after[0, 0])


def added(first: Array, second: Array, after: Array, row: int = 0) -> CellExample | None:
    """Return the sum for a cell of the first column."""
    left, right = float(first[row, 0]), float(second[row, 0])
    return _cell(row, 0, f"{number(left)} {_signed(right)}", left + right, after[row, 0])


def product(queries: Array, keys: Array, scale: float, scores: Array) -> CellExample | None:
    """Return the scaled dot product of the last query and the first key."""
    row = len(queries) - 1
    terms = [f"{_bracket(q)}·{_bracket(k)}" for q, k in zip(queries[row], keys[0], strict=True)]
    value = float(queries[row] @ keys[0]) * scale
    return _cell(row, 0, f"({_sum(terms)}) · {number(scale)}", value, scores[row, 0])


def softmax_weight(scores: Array, weights: Array) -> CellExample | None:
    """Return the softmax for the first weight of the last row."""
    row = len(scores) - 1
    unmasked = [float(value) for value in scores[row] if _is_unmasked(value)]
    if not unmasked or not _is_unmasked(scores[row, 0]):
        return None
    powers = [f"e^{{{number(value)}}}" for value in unmasked]
    value = math.exp(unmasked[0] - float(np.logaddexp.reduce(unmasked)))
    return _cell(row, 0, f"{powers[0]} / ({_sum(powers)})", value, weights[row, 0])


def weighted_sum(weights: Array, values: Array, out: Array) -> CellExample | None:
    """Return the weighted sum for the first coordinate of the last row."""
    row = len(weights) - 1
    terms = [f"{number(weight)}·{_bracket(value)}" for weight, value in zip(weights[row], values[:, 0], strict=True)]
    return _cell(row, 0, _sum(terms), float(weights[row] @ values[:, 0]), out[row, 0])


def layer_norm(before: Array, eps: float, after: Array) -> CellExample | None:
    """Return the normalisation of the first cell to mean 0 and variance 1, before gain and bias."""
    cells = before[0].astype(np.float64)
    mean, variance = float(cells.mean()), float(cells.var())
    value = (float(cells[0]) - mean) / math.sqrt(variance + eps)
    top = f"{number(float(cells[0]))} {_signed(-mean)}"
    text = f"({top}) / √({number(variance)} + {eps:g})".replace("e-0", "e−").replace("e-", "e−")
    if _agree(value, float(after[0, 0])):
        return _cell(0, 0, text, value, after[0, 0])
    return CellExample(0, 0, f"{text} = {number(value)}, then · γ_0 + β_0 = {number(float(after[0, 0]))}")


def relu(before: Array, after: Array) -> CellExample | None:
    """Return max(0, x) for the first negative number."""
    cells = np.argwhere(before < 0)
    if not len(cells) or bool((after < 0).any()):
        return None
    row, column = (int(index) for index in cells[0])
    text = f"max(0, {number(float(before[row, column]))})"
    return _cell(row, column, text, 0.0, after[row, column])


def _cell(row: int, column: int, text: str, value: float, cell: float) -> CellExample | None:
    if not _agree(value, float(cell)):
        return None
    return CellExample(row, column, f"{text} = {number(float(cell))}")


def _is_unmasked(score: float) -> bool:
    """Return whether the key of a score is not masked."""
    return bool(np.isfinite(score)) and score > -LARGE


def _agree(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _sum(terms: Sequence[str]) -> str:
    """Join terms with plus signs; the middle of many terms is omitted."""
    if len(terms) > MAX_TERMS + 1:
        terms = [*terms[:MAX_TERMS], "…", terms[-1]]
    return " + ".join(terms)


def _bracket(value: float) -> str:
    shown = number(float(value))
    return f"({shown})" if shown.startswith("−") else shown


def _signed(value: float) -> str:
    return f"− {number(-value)}" if value < 0 else f"+ {number(value)}"
