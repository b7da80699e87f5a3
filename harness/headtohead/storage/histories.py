"""Reading of ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SkipValidation, TypeAdapter, ValidationError

from headtohead import files
from headtohead.storage.record import Count, NonNegative
from headtohead.storage.results import valid_metrics

LAST_TIME = 253_402_300_800.0
"""The year 10000 in seconds since 1970: no date of Python is later."""


@dataclass(frozen=True)
class MetricLine:
    """A line of ``metrics.jsonl``: an evaluation of a run; ``time`` in seconds since 1970."""

    step: Count
    time: Annotated[NonNegative, Field(lt=LAST_TIME)]
    values: Annotated[Mapping[str, SkipValidation[float | None]], AfterValidator(valid_metrics)]
    epoch: NonNegative = 0.0


_LINE = TypeAdapter(MetricLine)


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
    for line in filter(bytes.strip, content.split(b"\n")):
        try:
            yield _LINE.validate_json(line)
        except ValidationError:
            yield None
