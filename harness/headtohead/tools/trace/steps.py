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
        name: Where it stands, such as ``encoder.0.self.head.1.weights``.
        values: ``[row, column]``, or ``[row]`` for ids.
        rows: The token of each row.
        columns: What each column is; empty where columns are coordinates.
        formula: How it comes from the steps before, with ``_`` before what stands below the line
            and ``^`` before what stands above.
        says: The same in words.
        example: One cell computed by hand, or nothing.
        remarks: A word about each row of ids.
        prominent: The columns to show where there is no room for all.
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
    def place(self) -> str:
        """What the step is part of, such as ``encoder.0.self.head.1``; empty for the last ones."""
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
        title: Of whom: a recipe with a seed, or a run.
        source: The sentence that is read.
        target: What the decoder reads, and where that comes from, in words.
        steps: In their order.
        notes: What a reader should know, one sentence each.
        hears_source: Whether the second attention of the decoder reads the encoder.
    """

    title: str
    source: str
    target: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    hears_source: bool = True

    def __getitem__(self, name: str) -> Array:
        """Return the numbers of a step.

        Raises:
            HeadToHeadError: If there is none of this name.
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
        kept = tuple(one for one in self.steps if f"{one.name}.".startswith(f"{part}."))
        if kept:
            return replace(self, steps=kept)
        raise self._unknown(part)

    def _unknown(self, name: str) -> HeadToHeadError:
        """Return the error that suggests the nearest name, or tells the large parts."""
        places = [place for one in self.steps for place in _places(one.name)]
        large = [place for place in places if place.count(".") < 2]
        close = get_close_matches(name, places, n=1, cutoff=0.6)
        return HeadToHeadError(f"no step '{name}'{nearest(name, close or large)}")


def _places(name: str) -> list[str]:
    """Return a name and the names of all that it is part of."""
    words = name.split(".")
    return [".".join(words[:length]) for length in range(1, len(words) + 1)]


def as_share(values: Array) -> Array:
    """Return the softmax of the last axis, in double precision."""
    raised: Array = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Array = raised / raised.sum(axis=-1, keepdims=True)
    return shares
