"""Score translations that need no training, and keep the scores in the folder of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headtohead.data import PreparedData, reference_points
from headtohead.data.metrics import task_metrics
from headtohead.files import write_json
from headtohead.schema.metric import Metric
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import (
    REFERENCE_POINTS,
    ReferencePointsRecord,
    ReferenceScores,
    read_reference_points,
)
from headtohead.storage.paths import checked_path
from headtohead.training.evaluate import Translations


def save_reference_points(
    experiment_dir: Path, scored: Iterable[tuple[RunConfig, PreparedData]]
) -> None:
    """Compute the reference points of an experiment that its folder lacks.

    Args:
        experiment_dir: The experiment's folder.
        scored: The configuration of each variant, with its data; variants without decoding have no reference points.
    """
    entries = {
        (entry.data_hash, entry.test_limit): entry
        for entry in read_reference_points(experiment_dir)
    }
    num_stored = len(entries)
    for config, data in scored:
        limit = config.evaluate.test_limit
        if config.evaluate.decode != "none" and (data.data_hash, limit) not in entries:
            metrics = task_metrics(config.data.dataset)
            entries[data.data_hash, limit] = reference_scores(data, limit, metrics)
    if len(entries) > num_stored:
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
