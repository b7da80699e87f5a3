"""A limit of time that parts of a check share, and the time of a computation, both in processor time."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds_of(compute: Callable[[], object]) -> float:
    """Return the processor time of a computation in this thread."""
    started = time.thread_time()
    compute()
    return time.thread_time() - started


class Clock:
    """A limit of the processor time of the calling thread: other processes that use the processor do not shorten it.

    Worker threads of torch do not count.

    Args:
        seconds: Seconds of processor time from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    @property
    def left(self) -> float:
        """Seconds until the limit; negative after it."""
        return self._end - time.thread_time()

    def share(self, fraction: float) -> Clock:
        """Return the limit of a part of the remaining time."""
        return Clock(self.left * fraction)
