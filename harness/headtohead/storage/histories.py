"""Reading of ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headtohead import files
from headtohead.storage.metrics import in_range

LAST_TIME = 253_402_300_800.0
"""The year 10000 in seconds since 1970: no date of Python is later."""


class MetricLine(NamedTuple):
    """A line of ``metrics.jsonl``: an evaluation of a run; ``time`` in seconds since 1970."""

    step: int
    epoch: float
    time: float
    values: Mapping[str, float | None]


def read_metrics(path: Path) -> Iterator[MetricLine | None]:
    """Yield the lines of a metrics file, and None for a damaged line; a missing file has no lines.

    A crash leaves an incomplete line. A line with a wrong type or a value outside the range of its metric is damaged
    too.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    try:
        content = files.read_bytes(path, files.LARGE_BYTES)
    except FileNotFoundError:
        return
    yield from parse_metrics(content)


def parse_metrics(content: bytes) -> Iterator[MetricLine | None]:
    """Yield the lines of a part of a metrics file, and None for a damaged line."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    # If every line is complete, a single call parses the whole file.
    entries = _parse(b"[" + b",".join(lines) + b"]")
    if not isinstance(entries, list) or len(entries) != len(lines):
        entries = [_parse(line) for line in lines]
    for entry in entries:
        try:
            yield _line(entry)
        except (AttributeError, KeyError, TypeError, ValueError):
            yield None


def _line(entry: Any) -> MetricLine:
    """Return a parsed line; raise an error if it is damaged."""
    step, epoch, time, values = entry["step"], entry.get("epoch", 0.0), entry["time"], entry["values"]
    if type(step) is not int or not 0 <= step < 2**63:
        raise ValueError("step")
    if not (in_range("epoch", epoch) and in_range("time", time) and 0 <= epoch < math.inf and 0 <= time < LAST_TIME):
        raise ValueError("epoch or time")
    for name, value in values.items():
        if not in_range(name, value):
            raise ValueError(name)
    return MetricLine(step, float(epoch), float(time), values)


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
