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
    """Return the ends of the interval with their words, the further one first."""
    above, below = (COMPARATIVES.get(word, word) for word in better_words(contrast))
    interval = contrast["interval"]
    ends = [(interval["high"], above), (-interval["low"], below)]
    return sorted(ends, key=lambda end: end[0], reverse=True)


def possible_sizes(contrast: Mapping[str, Any]) -> Expected:
    """Return the sizes of the ends of the interval, NaN without one."""
    if contrast["interval"] is None:
        return [np.nan, np.nan]
    return [size for size, _ in possible_ends(contrast)]


def has_possible(contrast: Mapping[str, Any], text: str) -> bool:
    """Return whether a text has how large the difference of a contrast without a shown difference can be."""
    old = OLD_FORM.search(text)
    if old is not None:
        return agrees(old[1], contrast["largest_possible"])
    found = POSSIBLE.search(text)
    if found is None:
        return False
    first, first_word, second, second_word = found.groups()
    printed = [(first, first_word), (second, second_word)]
    expected = possible_ends(contrast)
    # Older reports leave out an end within the margin.
    if second is None and expected[1][0] < (contrast["margin"] or 0.0):
        printed.pop()
        expected.pop()
    if second is None and len(printed) > 1:
        return False
    return all(
        agrees(number, size) and word == side
        for (number, word), (size, side) in zip(printed, expected, strict=True)
    )
