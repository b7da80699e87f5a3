"""Reading and writing of ``reference_points.json`` in the folder of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from headtohead.files import write_json
from headtohead.storage.paths import inside
from headtohead.storage.record import Count, Record, read_record
from headtohead.storage.results import Scores

REFERENCE_POINTS = "reference_points.json"


class ReferenceScores(Record):
    """Scores of translations that need no training, on the first ``test_limit`` sentences of the test data."""

    data_hash: str
    test_limit: Count | None
    sentences: Count
    nearest_neighbour: Scores
    vocabulary_bound: Scores
    source_copy: Scores
    majority: Scores | None = None


class ReferencePointsRecord(Record):
    """The reference points of an experiment, an entry per data set."""

    format: Literal[1] = 1
    data: tuple[ReferenceScores, ...]


def read_reference_points(experiment_dir: Path) -> tuple[ReferenceScores, ...]:
    """Return the reference points of an experiment by data set; empty if they were not computed.

    Raises:
        HeadToHeadError: If the file is damaged.
    """
    record = read_record(ReferencePointsRecord, inside(experiment_dir, REFERENCE_POINTS))
    return record.data if record else ()


def write_reference_points(experiment_dir: Path, data: tuple[ReferenceScores, ...]) -> None:
    """Write the reference points of an experiment."""
    write_json(inside(experiment_dir, REFERENCE_POINTS), ReferencePointsRecord(data=data).to_json())
