"""Score translations that need no training, and keep the scores in the folder of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headtohead.data import PreparedData, reference_points
from headtohead.data.metrics import task_metrics
from headtohead.errors import HeadToHeadError
from headtohead.files import write_json
from headtohead.schema.metric import Metric
from headtohead.schema.run_config import DataConfig
from headtohead.storage.experiment import (
    REFERENCE_POINTS,
    ExperimentDirectory,
    ReferencePointsRecord,
    ReferenceScores,
    read_reference_points,
)
from headtohead.storage.paths import checked_path
from headtohead.training.evaluate import Translations

Load = Callable[[DataConfig], PreparedData]


def save_reference_points(experiment_dir: Path, load: Load) -> None:
    """Compute the reference points of an experiment's data that its folder lacks.

    Args:
        experiment_dir: The folder with ``experiment.json``.
        load: Returns the prepared data of a configuration; data that cannot be loaded are left out.
    """
    record = ExperimentDirectory.read(experiment_dir).record
    stored = read_reference_points(experiment_dir)
    configs = [variant.config for variant in record.variants]
    wanted = {
        (config.data.model_dump_json(), config.evaluate.test_limit): config
        for config in configs
        if config.evaluate.decode != "none"
    }
    if len(stored) >= len(wanted) and (
        not wanted or record.data["data_hash"] in {entry.data_hash for entry in stored}
    ):
        return
    entries = {(entry.data_hash, entry.test_limit): entry for entry in stored}
    for config in wanted.values():
        with suppress(HeadToHeadError):
            data, limit = load(config.data), config.evaluate.test_limit
            if (data.data_hash, limit) not in entries:
                entries[data.data_hash, limit] = reference_scores(
                    data, limit, task_metrics(config.data.dataset)
                )
    if len(entries) > len(stored):
        points = ReferencePointsRecord(data=tuple(entries.values()))
        write_json(checked_path(experiment_dir, REFERENCE_POINTS), points.to_json())


def reference_scores(
    data: PreparedData, test_limit: int | None, metrics: Sequence[Metric]
) -> ReferenceScores:
    """Return the scores of nearest neighbours, vocabulary upper bound and copied sources on the test split.

    A labelled sequence is no answer, so its copy is left out.
    """
    test = data.splits["test"]
    rows = test.distinct_sources(test_limit)
    sources = tuple(test.source_text[row] for row in rows)
    references = tuple(test.references[row] for row in rows)
    translations = {
        "nearest_neighbour": reference_points.nearest_neighbour_translations(data, rows),
        "vocabulary_bound": reference_points.vocabulary_bound_translations(data, rows),
    }
    if test.labels is None:
        translations["source_copy"] = list(sources)
    if (majority := reference_points.majority_target(data)) is not None:
        translations["majority"] = [majority] * len(rows)
    scores = {
        name: Translations(sources, references, tuple(hypotheses)).scores(metrics)
        for name, hypotheses in translations.items()
    }
    return ReferenceScores(
        data_hash=data.data_hash, test_limit=test_limit, sentences=len(rows), **scores
    )
