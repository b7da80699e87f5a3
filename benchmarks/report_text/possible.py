"""Words on a difference that was not shown: how large it can be, and on which side of 0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from recompute import better_words

from report_text.numbers import Expected, N, agrees

COMPARATIVES = {"larger": "higher", "smaller": "lower"}
"""Words for a difference that is no quality, by the verdict."""

POSSIBLE = re.compile(rf"could be up to {N} (\w+)(?: or {N} (\w+))?")
OLD_FORM = re.compile(rf"could be up to {N}(?![\d.]| \w)")
"""Older reports, which cannot be drawn again without their runs, name the size without *better* or *worse*."""


def possible_ends(contrast: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return the ends of the interval that are printed, with their words, the further one first."""
    above, below = (COMPARATIVES.get(word, word) for word in better_words(contrast))
    interval = contrast["interval"]
    ends = [(interval["high"], above), (-interval["low"], below)]
    far, near = sorted(ends, key=lambda end: end[0], reverse=True)
    return [far] if near[0] < (contrast["margin"] or 0.0) else [far, near]


def possible_sizes(contrast: Mapping[str, Any]) -> Expected:
    """Return the sizes of the printed ends of the interval, NaN for an end that is not printed."""
    sizes = []
    if contrast["interval"] is not None:
        sizes = [size for size, _ in possible_ends(contrast)]
    return [*sizes, np.nan, np.nan][:2]


def has_possible(contrast: Mapping[str, Any], text: str) -> bool:
    """Return whether a text has how large the difference of a contrast without a shown difference can be."""
    old = OLD_FORM.search(text)
    if old is not None:
        return agrees(old[1], contrast["largest_possible"])
    found = POSSIBLE.search(text)
    if found is None:
        return False
    first, first_word, second, second_word = found.groups()
    printed = [(first, first_word), (second, second_word)][: 1 if second is None else 2]
    expected = possible_ends(contrast)
    if len(printed) != len(expected):
        return False
    return all(
        agrees(number, size) and word == side
        for (number, word), (size, side) in zip(printed, expected, strict=True)
    )
