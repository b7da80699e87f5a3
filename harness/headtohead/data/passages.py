"""Division of a text into passages: validation and test are spread over the text, and training is the rest.

Losses on one passage of a text differ from those on another one by more than seeds explain, and neighbouring blocks of
one passage cannot show this. Validation and test therefore have twenty passages each where the text is long enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.data.splits import WINDOW
from headtohead_judge.groups import MIN_GROUPS

PASSAGES = MIN_GROUPS
"""Number of passages of validation, and of the test: the fewest whose variance is estimated."""

HELD_OUT = 0.1
"""Default fraction of a text for validation and test together."""

MAX_HELD_OUT = 0.2
"""Maximum of that fraction where the default has too few tokens."""

MIN_TOKENS = 100_000
"""Number of tokens that validation and test have together by default, where `MAX_HELD_OUT` allows it."""

LINE = 1 / 8
"""Largest distance of a cut from the beginning of a line to which it is moved, as a fraction of a passage."""

ROUNDING = 0.005
"""The held-out part differs from its planned size by at most this fraction, since cuts are at beginnings of lines."""

MIN_LENGTH = 2 * WINDOW
"""Fewest tokens of a passage, so that leaks are found: they are searched in windows of ``WINDOW`` tokens."""


class Passage(NamedTuple):
    """A passage of a text from position ``start`` to before ``end``; ``part`` is train, valid or test."""

    part: str
    start: int
    end: int


def _default_held_out(length: int, token_size: int) -> float:
    """Return the fraction of a text that is held out by default.

    It is `HELD_OUT`, and more of a short text: what `MIN_TOKENS` tokens need, but at most `MAX_HELD_OUT`.

    Args:
        length: Length of the text.
        token_size: Length of a token, estimated.

    >>> [f"{_default_held_out(length, 1):.3f}" for length in (10_000_000, 670_000, 10_000)]
    ['0.100', '0.150', '0.199']
    """
    needed = MIN_TOKENS * (1 + ROUNDING) * token_size / max(1, length)
    return max(HELD_OUT, min(needed, MAX_HELD_OUT * (1 - ROUNDING)))


def last_passages(length: int, held_out: float | None) -> list[Passage]:
    """Return three passages: training, validation and test, the latter two of equal size at the end of the text.

    Args:
        length: Length of the text.
        held_out: Fraction of the text for validation and test together; None: `HELD_OUT`.
    """
    if held_out is None:
        held_out = HELD_OUT
    first = int(length * (1 - held_out))
    middle = first + (length - first) // 2
    return [
        Passage("train", 0, first),
        Passage("valid", first, middle),
        Passage("test", middle, length),
    ]


def spread_passages(
    length: int,
    held_out: float | None,
    line_starts: Sequence[int],
    *,
    block: int,
    token_size: int,
    seed: int,
) -> list[Passage]:
    """Return passages of validation and test that are spread over a text, with the training passages between them.

    The text has as many sections of equal size as there are held-out passages, and each section has one of them at a
    random position. Of sections 0 and 1, 2 and 3 and so on, one is for validation and one for the test, at random. The
    passages are in order, and every position of the text is in exactly one of them.

    Args:
        length: Length of the text in characters, or of a list of tokens.
        held_out: Fraction of the text for validation and test together; with 1 nothing is left for training. None: a
            tenth, or what `MIN_TOKENS` tokens need, but at most `MAX_HELD_OUT`.
        line_starts: Ascending positions at which a line begins; a cut is moved to the nearest one if it is close.
        block: Tokens of a block. A passage has at least ``block`` + 1 and at least `MIN_LENGTH` tokens, before cuts are
            moved to lines. A text that is too short for this has fewer than `PASSAGES` passages of each part; the
            passages of a text with one of each may be shorter.
        token_size: Length of a token, estimated.
        seed: Seed of the positions and of their division among validation and test.
    """
    if held_out is None:
        held_out = _default_held_out(length, token_size)
    generator = np.random.RandomState(seed)
    held_out_size = length * held_out
    shortest = token_size * max(block + 1, MIN_LENGTH)
    passages_per_part = int(held_out_size // (2 * shortest))
    passages_per_part = max(1, min(PASSAGES, passages_per_part))
    num_sections = 2 * passages_per_part
    passage_size = held_out_size / num_sections
    cuts = _Cuts(length, line_starts, LINE * passage_size)
    passages: list[Passage] = []
    parts = ("valid", "test")
    size_so_far = 0  # of the passages of validation and test
    position = 0
    for index in range(num_sections):
        if index % 2 == 0:  # this section and the next one have a passage of each part
            is_validation_first = generator.random_sample() < 0.5
            parts = ("valid", "test") if is_validation_first else ("test", "valid")
        section_start = index * length / num_sections
        section_end = (index + 1) * length / num_sections
        slack = section_end - section_start - passage_size
        start = position
        if slack >= 1:  # else passages follow each other, and nothing is left for training
            random_start = section_start + slack * generator.random_sample()
            start = max(position, cuts.nearest(random_start))
        # Earlier cuts were moved to lines; this passage makes up for what they added or removed.
        planned_size = (index + 1) * passage_size - size_so_far
        end = min(cuts.nearest(start + planned_size), cuts.nearest(section_end))
        if start > position:
            passages.append(Passage("train", position, start))
        passages.append(Passage(parts[index % 2], start, end))
        size_so_far += end - start
        position = end
    if position < length:
        passages.append(Passage("train", position, length))
    return passages


class _Cuts:
    """Positions at which a text may be cut.

    Args:
        length: Length of the text.
        line_starts: Ascending positions at which a line begins.
        distance: Largest distance of a cut from the position that it replaces.
    """

    def __init__(self, length: int, line_starts: Sequence[int], distance: float) -> None:
        self.positions: NDArray[np.int64] = np.array([0, *line_starts, length], dtype=np.int64)
        self.distance = distance

    def nearest(self, position: float) -> int:
        """Return the beginning of a line nearest to a position, or without a close one the position, rounded."""
        after = int(np.searchsorted(self.positions, position))
        candidates = self.positions[max(0, after - 1) : after + 1]
        nearest = int(candidates[np.abs(candidates - position).argmin()])
        if abs(nearest - position) <= self.distance:
            return nearest
        return round(position)
