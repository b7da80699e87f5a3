"""The results of a run: ``results.json``, ``heads.json``, ``vocabulary.json`` and the lines of ``metrics.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import AfterValidator, Field, SkipValidation, StrictBool, model_validator
from typing_extensions import TypedDict

from headtohead.schema.roles import Role
from headtohead.storage.metrics import in_range, span
from headtohead.storage.record import Count, Fraction, NonNegative, Number, Record

MetricName = Annotated[str, Field(pattern="^(train|valid|test|attention|system)/")]


HeadMetricName = Annotated[str, Field(pattern="^heads/")]


class BackendRecord(Record):
    """How training steps were executed."""

    name: str
    why: str


def valid_metrics(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metrics; raise ValueError if a value is not a number in the range of its metric."""
    for name, value in metrics.items():
        if not in_range(name, value):
            low, high = span(name)
            expected = "a number" if math.isinf(low) else f"a number from {low:g} to {high:g}"
            raise ValueError(f"{name} is {str(value)[:40]!r}, expected {expected}")
    return metrics


@dataclass(frozen=True)
class MetricLine:
    """A line of ``metrics.jsonl``: an evaluation of a run; ``time`` in seconds since 1970, before the year 10000."""

    step: Count
    time: Annotated[NonNegative, Field(lt=253_402_300_800.0)]
    values: Annotated[Mapping[str, SkipValidation[float | None]], AfterValidator(valid_metrics)]
    epoch: NonNegative = 0.0


def _valid_scores(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    valid_metrics({f"test/{name}": value for name, value in scores.items()})
    return scores


Scores = Annotated[Mapping[str, SkipValidation[int | float | None]], AfterValidator(_valid_scores)]
"""Scores of the test split by the last part of the metric's name."""

MetricValues = Annotated[
    Mapping[MetricName, SkipValidation[int | float | None]], AfterValidator(valid_metrics)
]
"""Metrics by name, each within its range."""


class DecodingRecord(TypedDict):
    """How translations were generated; ``max_length`` belongs to greedy decoding."""

    decode: str
    max_length: NotRequired[Count]


class BucketRecord(TypedDict):
    """Scores of the test sentences with a source length from ``low`` to ``high``; no maximum if that is None.

    ``counts`` are those of each metric, summed over the sentences; ``Metric.pool`` computes the score from them.
    """

    bucket: str
    low: Count
    high: Count | None
    n: Count
    scores: Scores
    counts: NotRequired[Mapping[str, tuple[Number, ...]]]


class ResultsRecord(Record):
    """The final scores of a run."""

    metrics: MetricValues
    buckets: tuple[BucketRecord, ...]
    signatures: Mapping[str, str]
    decoding: DecodingRecord | None = None
    padding: Mapping[str, Fraction] | None = None
    best_step: Count | None
    stopped_early: StrictBool
    backend: BackendRecord | None = None
    notes: tuple[str, ...]


HeadScores = Mapping[str, Number]
"""Scores of a model, or their changes."""

HeadRecord = TypedDict(
    "HeadRecord",
    {
        "role": Role,
        "layer": Count,
        "head": Count,
        "without-one": HeadScores,
        "only-one": HeadScores,
        "entropy": NotRequired[Number],
        "distance": NotRequired[Number],
    },
)
"""The changes of the scores if a head, or every other head of its layer, is masked."""


class _Heads(TypedDict):
    """The content of ``heads.json``."""

    format: Literal[1]
    split: str
    whole: HeadScores
    heads: list[HeadRecord]
    metrics: dict[HeadMetricName, Number | None]


def _equal_names(record: _Heads) -> _Heads:
    names = record["whole"].keys()
    for number, head in enumerate(record["heads"]):
        if not head["without-one"].keys() == head["only-one"].keys() == names:
            raise ValueError(
                f"heads.{number}: expected {', '.join(names)} in without-one and only-one"
            )
    return record


HeadsRecord = Annotated[_Heads, AfterValidator(_equal_names)]
"""The content of ``heads.json``."""


class VocabularyRecord(Record):
    """The words of each side by id; None for a checkpoint that was imported without them."""

    source: tuple[str, ...] | None
    target: tuple[str, ...] | None

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("expected the words of both sides, or null for both")
        return self
