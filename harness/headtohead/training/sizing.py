"""How many members of a stack pay: timed on the shapes that will be trained."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

import torch

from headtohead.data import PreparedData
from headtohead.schema.run_config import RunConfig
from headtohead.training.backends import BatchSpec, not_tested
from headtohead.training.loop import StackTraining, wait
from headtohead.training.memory import is_out_of_memory

STEPS = 3
"""Steps that are timed of each size, after the first; the shortest counts."""

WARM_UP = 8
"""Steps after which timing starts even where the backend still captures or verifies."""

LOOKED_AT = 32
"""Batches of which the most frequent shape is timed."""

WORSE = 1.1
"""Two sizes in a row that are so much slower than the best end the search."""

NO_GAIN = 1.03
"""Sizes within so much of the best are as good, and the smallest of them is taken."""


def time_sizes(
    config: RunConfig,
    data: PreparedData,
    device: torch.device,
    most: int,
    seconds: float,
    unverified: Callable[[str], str] = not_tested,
) -> dict[int, float]:
    """Return the seconds of a step per member, by members: 1, 2, 4 and on, as far as they fit.

    Args:
        config: A variant of the shape.
        data: Its data.
        device: Where it will be trained, with as many threads as it will have.
        most: Members at most.
        seconds: To spend on it, about; the next size is left out if it would take longer.
        unverified: Returns why a backend is not verified on this machine, or an empty text.
    """
    began, found, members, worse = time.monotonic(), dict[int, float](), 1, 0
    while members <= most:
        try:
            step = step_seconds(StackTraining(config, range(1, members + 1), data, device, unverified=unverified))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
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

    It is 1 if not even one member fits into memory.

    >>> paying({1: 4.0, 2: 2.2, 4: 1.21, 8: 1.2, 16: 1.4})
    4
    """
    if not seconds:
        return 1
    best = min(seconds.values())
    return min(members for members, one in seconds.items() if one <= NO_GAIN * best)


def step_seconds(training: StackTraining) -> float:
    """Return the seconds of a step as most steps of the training will take them.

    Steps that capture or verify a graph are not timed.
    """
    cut, clock = _frequent(training), _clock(training.device)
    for _ in range(WARM_UP):
        training._step(cut)
        if training.backend.is_steady(cut.shape):
            break
    found = []
    for _ in range(STEPS):
        wait(training.device)
        started = clock()
        training._step(cut)
        wait(training.device)
        found.append(clock() - started)
    return min(found)


def _frequent(training: StackTraining) -> BatchSpec:
    """Return a batch of the most frequent shape."""
    cuts = list(islice(training._batches(), LOOKED_AT))
    counts = Counter(cut.shape[:3] for cut in cuts)
    return max(cuts, key=lambda cut: counts[cut.shape[:3]])


def _clock(device: torch.device) -> Callable[[], float]:
    """Return the processor's time where one thread does it all: what else runs does not count."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter
