"""How many members of a stack pay: timed on the shapes that will be trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from headtohead.data import PreparedData
from headtohead.experiment.schema import RunConfig
from headtohead.training.loop import StackTraining, wait

STEPS = 3
"""Steps that are timed of each size, after one that is not; the shortest counts."""

WORSE = 1.1
"""Two sizes in a row that are so much slower than the best end the search."""

NO_GAIN = 1.03
"""Sizes within so much of the best are as good, and the smallest of them is taken."""


def time_sizes(
    config: RunConfig, data: PreparedData, device: torch.device, most: int, seconds: float
) -> dict[int, float]:
    """Return the seconds of a step per member, by members: 1, 2, 4 and on.

    Args:
        config: A variant of the shape.
        data: Its data.
        device: Where it will be trained, with as many threads as it will have.
        most: Members at most.
        seconds: To spend on it, about; the next size is left out if it would take longer.
    """
    began, found, members, worse = time.monotonic(), dict[int, float](), 1, 0
    while members <= most:
        try:
            step = _step_seconds(config, data, device, members)
        except (torch.OutOfMemoryError, MemoryError):
            break
        found[members] = step / members
        worse = worse + 1 if found[members] > WORSE * min(found.values()) else 0
        spent = time.monotonic() - began
        if worse == 2 or spent + 2 * (STEPS + 1) * step > seconds:
            break
        members *= 2
    return found


def paying(seconds: Mapping[int, float]) -> int:
    """Return the smallest number of members that is about as fast per member as any.

    >>> paying({1: 4.0, 2: 2.2, 4: 1.21, 8: 1.2, 16: 1.4})
    4
    """
    best = min(seconds.values())
    return min(members for members, one in seconds.items() if one <= NO_GAIN * best)


def _step_seconds(
    config: RunConfig, data: PreparedData, device: torch.device, members: int
) -> float:
    training = StackTraining(config, range(1, members + 1), data, device)
    batches = training._batches()
    found = []
    for _ in range(STEPS + 1):
        cut = next(batches)
        wait(device)
        clock = _clock(device)
        started = clock()
        training._step(cut)
        wait(device)
        found.append(clock() - started)
    return min(found[1:])


def _clock(device: torch.device) -> Callable[[], float]:
    """Return the processor's time where one thread does it all: what else runs does not count."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter
