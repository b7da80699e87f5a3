"""Reading and writing of ``reference_points.json`` in the folder of an experiment."""

from __future__ import annotations

from pathlib import Path

from headtohead.files import write_json
from headtohead.storage.paths import inside
from headtohead.storage.records import REFERENCE_POINTS, ReferencePointsRecord, ReferenceScores, read_record


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
