"""The steps of a forward pass, in the order in which they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError, nearest

Array = NDArray[Any]


@dataclass(frozen=True)
class Step:
    """One matrix, or one list of ids.

    Args:
        name: Path in the model, such as ``encoder.0.self.head.1.weights``.
        values: ``[row, column]``, or ``[row]`` for ids.
        rows: The token of each row.
        columns: What each column is; empty where columns are coordinates.
        formula: Its formula, with ``_`` before subscripts and ``^`` before superscripts.
        says: The formula in words.
        example: One cell computed by hand, or empty.
        remarks: A remark about each id.
        prominent: The columns shown where there is no room for all.
    """

    name: str
    values: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    formula: str = ""
    says: str = ""
    example: str = ""
    remarks: tuple[str, ...] = ()
    prominent: tuple[int, ...] = ()

    @property
    def part(self) -> str:
        """Path of the part with the step, such as ``encoder.0.self.head.1``; empty for the last steps."""
        return self.name.rpartition(".")[0]

    @property
    def title(self) -> str:
        """The name of the step itself, in words."""
        return self.name.rpartition(".")[2].replace("-", " ")

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""
        return tuple(self.values.shape)


@dataclass(frozen=True)
class Trace:
    """A whole forward pass of one sentence pair.

    Args:
        title: The model: a recipe with a seed, or a run.
        source: The source sentence.
        target: The decoder input, and where it comes from, in words.
        steps: In order of computation.
        notes: Remarks, one sentence each.
        cross_reads_encoder: Whether cross-attention reads the encoder.
    """

    title: str
    source: str
    target: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    cross_reads_encoder: bool = True

    def __getitem__(self, name: str) -> Array:
        """Return the numbers of a step.

        Raises:
            HeadToHeadError: If no step has this name.
        """
        for step in self.steps:
            if step.name == name:
                return step.values
        raise self._unknown(name)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def only(self, part: str) -> Trace:
        """Return the steps of one part, such as ``encoder.0.self``, or one step.

        Raises:
            HeadToHeadError: If there is none.
        """
        kept = tuple(step for step in self.steps if f"{step.name}.".startswith(f"{part}."))
        if kept:
            return replace(self, steps=kept)
        raise self._unknown(part)

    def _unknown(self, name: str) -> HeadToHeadError:
        """Return the error that suggests the nearest name, or lists the large parts."""
        paths = [path for step in self.steps for path in _paths(step.name)]
        large = [path for path in paths if path.count(".") < 2]
        close = get_close_matches(name, paths, n=1, cutoff=0.6)
        return HeadToHeadError(f"no step '{name}'{nearest(name, close or large)}")


def _paths(name: str) -> list[str]:
    """Return a name and the names of all enclosing parts."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def as_share(values: Array) -> Array:
    """Return the softmax of the last axis, in double precision."""
    raised: Array = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares
