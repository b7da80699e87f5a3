"""A limit of time that parts of a check share."""

from __future__ import annotations

import time


class Clock:
    """A limit of time.

    Args:
        seconds: Seconds from now.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the limit; negative after it."""
        return self._end - time.monotonic()

    def share(self, fraction: float) -> Clock:
        """Return the limit of a part of the remaining time."""
        return Clock(self.left * fraction)
