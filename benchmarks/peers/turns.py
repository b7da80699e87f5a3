"""A turn: some steps of one side, timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Step = Callable[[], tuple[Tensor | float, int]]
"""Trains one step and returns its mean loss and the target words in it."""


class Turned(NamedTuple):
    """What a turn brought: the loss of each step, the words that were predicted, the time.

    ``seconds`` are on the clock, ``processor`` those of all cores together.
    """

    losses: list[float]
    words: int
    seconds: float
    processor: float


Side = Callable[[int], Turned]
"""Trains so many steps."""


def in_turns(step: Step, device: torch.device) -> Side:
    """Return a side that takes steps; its losses are read when the turn is over."""

    def turn(steps: int) -> Turned:
        wait(device)
        began, worked = time.perf_counter(), time.process_time()
        found = [step() for _ in range(steps)]
        wait(device)
        seconds, processor = time.perf_counter() - began, time.process_time() - worked
        losses, words = zip(*found, strict=True)
        return Turned([float(one) for one in losses], sum(words), seconds, processor)

    return turn


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
