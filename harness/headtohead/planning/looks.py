"""Sequential seeds: the looks of a file with ``seeds: {until: decided}``, and the look that a study is at."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headtohead.config.loading import LoadedExperiment
from headtohead.errors import HeadToHeadError
from headtohead.statistics.looks import Looks
from headtohead.storage.experiment import ExperimentDirectory


def planned_looks(loaded: LoadedExperiment) -> Looks | None:
    """Return the numbers of seeds at which the study is judged, or None if the number of seeds is fixed."""
    sequential = loaded.sequential
    return Looks.planned(sequential.looks, sequential.at_most) if sequential else None


def current_look(looks: Looks, experiment: Path) -> int:
    """Return the number of seeds of the look that a study is at: the first look with all seeds of its record."""
    with suppress(HeadToHeadError):  # no record, or a damaged record
        recorded = len(ExperimentDirectory.read(experiment).record.seeds)
        return looks.next(recorded - 1) or looks.seeds[-1]
    return looks.seeds[0]
