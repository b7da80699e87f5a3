"""The verdict on the variant of each MLflow run, and its differences to the baseline with the same seed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headtohead.planning.variants import comparison_group
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.study import TrackedRun, TrackedStudy
from headtohead_mlflow.run_page import RUN_HASH_TAG
from headtohead_mlflow.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

VERDICT_TAG = "h2h.verdict"
DIFFERENCE = "diff/"
"""Prefix of the metrics that are a run's value minus that of the baseline's run with the same seed, data and size."""
CURVE = "valid/loss"
"""The metric that also has differences of each step."""


@dataclass(frozen=True)
class LoggedScore:
    """The score, the difference and the verdict of a finished MLflow run; NaN for a missing number."""

    run_id: str
    score: float
    difference: float
    verdict: str | None

    @classmethod
    def of(cls, run: Run, primary: str) -> LoggedScore:
        """Return the fields of an MLflow run; ``primary`` is the primary metric."""
        metrics = run.data.metrics
        return cls(
            run.info.run_id,
            metrics.get(primary, math.nan),
            metrics.get(DIFFERENCE + primary, math.nan),
            run.data.tags.get(VERDICT_TAG),
        )


def log_comparisons(
    store: Store, experiment_id: str, study: TrackedStudy, verdicts: Mapping[str, str]
) -> None:
    """Log verdicts and differences to the finished runs of a study, if they have changed.

    ``verdicts`` has the verdict on each variant by slug; empty: there are none yet.
    """
    from mlflow.entities import RunTag

    primary = study.record.metrics.primary
    logged = {}
    for mlflow_run in store.runs(experiment_id, "attributes.status = 'FINISHED'"):
        run_hash = mlflow_run.data.tags.get(RUN_HASH_TAG)
        logged[run_hash] = LoggedScore.of(mlflow_run, primary)
    finished = [run for run in study.runs() if run.run_hash in logged]
    by_variant = {(run.variant.slug, run.seed): run for run in finished}
    baselines = _baselines(study.record)
    for run in finished:
        score = logged[run.run_hash]
        tags = []
        verdict = _verdict_text(verdicts.get(run.variant.slug))
        if verdict not in (None, score.verdict):
            tags.append(RunTag(VERDICT_TAG, verdict))
        baseline = by_variant.get((baselines.get(run.variant.slug, ""), run.seed), run)
        difference = math.nan
        if baseline is not run:
            difference = score.score - logged[baseline.run_hash].score
        points: list[Metric] = []
        if str(difference) != str(score.difference):  # as texts, since NaN differs from itself
            points = _differences(run, baseline, primary, score.difference, difference)
        if tags or points:
            store.client.log_batch(score.run_id, metrics=points, tags=tags)


def _verdict_text(verdict: str | None) -> str | None:
    """Return a verdict that names the baseline, since the answer can be about averages over several variants."""
    if verdict is None or verdict == "baseline":
        return verdict
    return f"{verdict} (against the baseline)" if verdict else None


def _differences(
    run: TrackedRun, baseline: TrackedRun, primary: str, earlier: float, difference: float
) -> list[Metric]:
    """Return the points of a run's differences to the baseline's run; all are NaN if it is that run itself.

    Of values of the same step, MLflow displays the latest. NaN replaces a difference to an earlier baseline.
    """
    from mlflow.entities import Metric

    now = round(1000 * time.time())
    curve = _curve(run)
    baseline_curve = {} if baseline is run else _curve(baseline)
    had_difference = math.isfinite(earlier)
    points = []
    for step, value in curve.items():
        if had_difference or step in baseline_curve:
            change = value - baseline_curve.get(step, math.nan)
            points.append(Metric(DIFFERENCE + CURVE, change, now, step))
    last = max(curve, default=0)
    points.append(Metric(DIFFERENCE + primary, difference, now, last))
    return points


def _baselines(record: ExperimentRecord) -> dict[str, str]:
    """Return the baseline of every variant that has one with its data and size."""
    baselines = {}
    for contrast in record.contrasts:
        if contrast.family == "variant":
            baselines[contrast.variant] = contrast.against
    group = comparison_group(record.by_slug[record.baseline].axes)
    for slug, variant in record.by_slug.items():
        if comparison_group(variant.axes) == group:
            baselines[slug] = record.baseline
    return baselines


def _curve(run: TrackedRun) -> dict[int, float]:
    """Return the values of ``CURVE`` by step."""
    return {point.step: point.metrics[CURVE] for point in run.steps() if CURVE in point.metrics}
