"""Numbers and intervals as values of JSON, which has neither NaN nor infinity."""

from __future__ import annotations

import math

from headtohead.statistics.paired_tests import Interval


def number(value: float) -> float | None:
    """Return the value, or None if it is not finite."""
    return value if math.isfinite(value) else None


def interval_record(interval: Interval | None) -> dict[str, float] | None:
    """Return level and ends of an interval, or None if there is no interval or its ends are not finite."""
    if interval is None or not math.isfinite(interval.low):
        return None
    return {"level": interval.level, "low": interval.low, "high": interval.high}
