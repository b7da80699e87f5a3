"""A turn: timed training steps of a side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Step = Callable[[], tuple[Tensor | float, int]]
"""Trains a step and returns its mean loss and its number of target tokens."""


class Turned(NamedTuple):
    """Result of a turn: loss of each step, number of target tokens, wall seconds and processor seconds."""

    losses: list[float]
    words: int
    seconds: float
    processor: float


Side = Callable[[int], Turned]
"""Trains the given number of steps."""


def in_turns(step: Step) -> Side:
    """Return a side that repeats a step and reads the losses at the end of a turn."""

    def turn(steps: int) -> Turned:
        began, worked = time.perf_counter(), time.process_time()
        results = [step() for _ in range(steps)]
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        losses, words = zip(*results, strict=True)
        return Turned([float(loss) for loss in losses], sum(words), seconds, processor)

    return turn
