"""Reading of ``metrics.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headtohead import files


class MetricLine(NamedTuple):
    """A line of ``metrics.jsonl``: an evaluation of a run; ``time`` in seconds since 1970."""

    step: int
    epoch: float
    time: float
    values: Mapping[str, float | None]


def read_metrics(path: Path) -> Iterator[MetricLine | None]:
    """Yield the lines of a metrics file, and None for an incomplete line; a missing file has no lines.

    Raises:
        HeadToHeadError: If the file cannot be read.
    """
    try:
        content = files.read_bytes(path, files.LARGE_BYTES)
    except FileNotFoundError:
        return
    yield from parse_metrics(content)


def parse_metrics(content: bytes) -> Iterator[MetricLine | None]:
    """Yield the lines of a part of a metrics file, and None for an incomplete line."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    # If every line is complete, a single call parses the whole file.
    entries = _parse(b"[" + b",".join(lines) + b"]")
    if not isinstance(entries, list) or len(entries) != len(lines):
        entries = [_parse(line) for line in lines]
    for entry in entries:
        try:
            yield MetricLine(int(entry["step"]), entry.get("epoch", 0.0), float(entry["time"]), dict(entry["values"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            yield None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
