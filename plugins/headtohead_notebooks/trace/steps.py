"""The steps of a forward pass, in the order in which they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError, nearest, suggestion

Array = NDArray[Any]

Indices = list[int | None]
"""Rows or columns in order; None stands for omitted ones."""


@dataclass(frozen=True)
class TraceStep:
    """One matrix, or one list of ids.

    Args:
        name: Path in the model, such as ``encoder.0.self.head.1.weights``.
        values: ``[row, column]``, or ``[row]`` for ids.
        rows: The token of each row.
        columns: The label of each column; empty if columns are coordinates.
        formula: The formula, with ``_`` before subscripts and ``^`` before superscripts.
        meaning: The formula in words.
        example: The calculation of a cell of scores, weights, outputs of heads or probabilities, or empty.
        remarks: A remark about each id.
        prominent: Indices of the columns that are shown if there is no space for all.
    """

    name: str
    values: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    formula: str = ""
    meaning: str = ""
    example: str = ""
    remarks: tuple[str, ...] = ()
    prominent: tuple[int, ...] = ()

    @property
    def part(self) -> str:
        """Path of the enclosing part, such as ``encoder.0.self.head.1``; empty for the last steps."""
        return self.name.rpartition(".")[0]

    @property
    def title(self) -> str:
        """Last component of the name, in words."""
        return self.name.rpartition(".")[2].replace("-", " ")

    def shown_rows(self, limit: int) -> Indices:
        """Return the first and the last rows, at most ``limit`` of them."""
        return _first_and_last(len(self.values), limit)

    def shown_columns(self, limit: int) -> Indices:
        """Return the prominent columns, or the first and the last ones, at most ``limit`` of them."""
        count = self.values.shape[1]
        if count <= limit or not self.prominent:
            return _first_and_last(count, limit)
        return [*self.prominent, None]


@dataclass(frozen=True)
class Trace:
    """The forward pass of one sentence pair.

    Args:
        title: The model: a recipe with a seed, or a run.
        source: The source sentence.
        target: The decoder input and its origin, in words.
        steps: The steps in order of computation.
        notes: Remarks, one sentence each.
        attends_to_source: Whether cross-attention attends to the encoder.
    """

    title: str
    source: str
    target: str
    steps: tuple[TraceStep, ...]
    notes: tuple[str, ...] = ()
    attends_to_source: bool = True

    def __getitem__(self, name: str) -> Array:
        """Return the values of a step.

        Raises:
            HeadToHeadError: If no step has this name.
        """
        for step in self.steps:
            if step.name == name:
                return step.values
        raise self._unknown(name)

    def __iter__(self) -> Iterator[TraceStep]:
        return iter(self.steps)

    def only(self, part: str) -> Trace:
        """Return the steps of one part, such as ``encoder.0.self``, or one step.

        Raises:
            HeadToHeadError: If there is no such part or step.
        """
        steps = tuple(step for step in self.steps if f"{step.name}.".startswith(f"{part}."))
        if steps:
            return replace(self, steps=steps)
        raise self._unknown(part)

    def write_arrays(self, path: Path) -> None:
        """Write the values of every step; ``numpy.load(path)[name]`` returns them."""
        arrays = {step.name: step.values for step in self}
        with path.open("wb") as handle:
            np.savez_compressed(handle, **arrays)  # type: ignore[arg-type]

    def _unknown(self, name: str) -> HeadToHeadError:
        """Return an error with the nearest name, or with the names of the large parts."""
        paths = [path for step in self.steps for path in enclosing_paths(step.name)]
        large = [path for path in paths if path.count(".") < 2]
        return HeadToHeadError(f"no step '{name}'{suggestion(name, paths) or nearest(name, large)}")


def enclosing_paths(name: str) -> list[str]:
    """Return the paths of all enclosing parts, the largest first, and the name itself."""
    components = name.split(".")
    return [".".join(components[:length]) for length in range(1, len(components) + 1)]


def _first_and_last(count: int, limit: int) -> Indices:
    if count <= limit:
        return list(range(count))
    last = limit // 3
    return [*range(limit - last), None, *range(count - last, count)]
