"""Timing of stack sizes, to choose the number of members that trains fastest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice

import torch

from headtohead.data import PreparedData
from headtohead.schema.run_config import RunConfig
from headtohead.training.backends import BatchSpec, not_tested
from headtohead.training.cuda import wait
from headtohead.training.loop import StackTraining
from headtohead.training.memory import is_out_of_memory

STEPS = 3
"""Timed steps per size, after the warm-up; the shortest is used."""

WARM_UP = 8
"""Steps after which timing starts even if the backend still captures or verifies."""

LOOKED_AT = 32
"""Number of batches among which the most frequent shape is chosen for timing."""

WORSE = 1.1
"""Two consecutive sizes that are slower than the best by this factor end the search."""

NO_GAIN = 1.03
"""The smallest size within this factor of the best is chosen."""


def time_sizes(
    config: RunConfig,
    data: PreparedData,
    device: torch.device,
    most: int,
    seconds: float,
    unverified: Callable[[str], str] = not_tested,
) -> dict[int, float]:
    """Return the seconds of a step per member for 1, 2, 4, ... members, as far as they fit into memory.

    Args:
        config: A variant of the stack's shape.
        data: The data of the variant.
        device: Device of the training. The number of threads must be that of the training.
        most: Maximum number of members.
        seconds: Approximate time limit; a size that would exceed it is not timed.
        unverified: Returns why a backend is not verified on this machine, or an empty text.
    """
    began, timed, members, worse = time.monotonic(), dict[int, float](), 1, 0
    while members <= most:
        try:
            step = step_seconds(StackTraining(config, range(1, members + 1), data, device, unverified=unverified))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break
        timed[members] = step / members
        worse = worse + 1 if timed[members] > WORSE * min(timed.values()) else 0
        spent = time.monotonic() - began
        if worse == 2 or spent + 2 * (STEPS + 1) * step > seconds:
            break
        members *= 2
    return timed


def best_stack_size(seconds: Mapping[int, float]) -> int:
    """Return the smallest number of members that is about as fast per member as the best.

    It is 1 if no size fits into memory.

    >>> best_stack_size({1: 4.0, 2: 2.2, 4: 1.21, 8: 1.2, 16: 1.4})
    4
    """
    if not seconds:
        return 1
    best = min(seconds.values())
    return min(members for members, per_member in seconds.items() if per_member <= NO_GAIN * best)


def step_seconds(training: StackTraining) -> float:
    """Return the seconds of a step of the most frequent shape, without capture or verification."""
    spec, clock = _frequent(training), _clock(training.device)
    for _ in range(WARM_UP):
        training._step(spec)
        if training.backend.is_steady(spec.shape):
            break
    seconds = []
    for _ in range(STEPS):
        wait(training.device)
        started = clock()
        training._step(spec)
        wait(training.device)
        seconds.append(clock() - started)
    return min(seconds)


def _frequent(training: StackTraining) -> BatchSpec:
    specs = list(islice(training._batches(), LOOKED_AT))
    counts = Counter(spec.shape[:3] for spec in specs)
    return max(specs, key=lambda spec: counts[spec.shape[:3]])


def _clock(device: torch.device) -> Callable[[], float]:
    """Return CPU time for a single thread, which excludes other processes; else wall time."""
    single_thread = device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if single_thread else time.perf_counter
