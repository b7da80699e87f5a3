"""The verdict on the variant of each MLflow run, and its differences to the baseline with the same seed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headtohead.planning.variants import comparison_group
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.study import TrackedRun, TrackedStudy
from headtohead_mlflow.run_page import RUN_HASH_TAG, metric_name
from headtohead_mlflow.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run

VERDICT_TAG = "h2h.verdict"
DIFFERENCE = "diff/"
"""Prefix of the metrics that are a run's value minus that of the baseline's run with the same seed, data and size."""
CURVE = "valid/loss"
"""The metric that also has differences of each step."""


@dataclass(frozen=True)
class LoggedScores:
    """The metrics and the verdict of a finished MLflow run."""

    run_id: str
    metrics: Mapping[str, float]
    verdict: str | None

    @classmethod
    def of(cls, run: Run) -> LoggedScores:
        """Return the fields of an MLflow run."""
        return cls(run.info.run_id, run.data.metrics, run.data.tags.get(VERDICT_TAG))

    def metric(self, name: str) -> float:
        """Return a metric; NaN if the run lacks it."""
        return self.metrics.get(name, math.nan)


def difference_name(record: ExperimentRecord, axis: str | None = None) -> str:
    """Return the metric of the difference of the primary metric.

    Args:
        record: The study.
        axis: The axis whose value alone differs between the two runs; None: the difference to the baseline. In a study
            of a single axis, both are the same metric.
    """
    if axis is None or len(record.axes) == 1:
        return f"{DIFFERENCE}{record.metrics.primary}"
    return metric_name(f"{DIFFERENCE}{axis}/{record.metrics.primary}")


def axes_with_differences(record: ExperimentRecord) -> list[str]:
    """Return the axes over whose values averages are meaningful.

    Changes between two configurations are not a grid, so that averages over the other axes mean nothing.
    """
    if any(contrast.family in ("added", "taken") for contrast in record.contrasts):
        return []
    return [*record.axes]


def log_comparisons(
    store: Store, experiment_id: str, study: TrackedStudy, verdicts: Mapping[str, str]
) -> None:
    """Log verdicts and differences to the finished runs of a study, if they have changed.

    ``verdicts`` has the verdict on each variant by slug; empty: there are none yet.
    """
    from mlflow.entities import RunTag

    logged = {}
    for mlflow_run in store.runs(experiment_id, "attributes.status = 'FINISHED'"):
        run_hash = mlflow_run.data.tags.get(RUN_HASH_TAG)
        logged[run_hash] = LoggedScores.of(mlflow_run)
    finished = [run for run in study.runs() if run.run_hash in logged]
    by_variant = {(run.variant.slug, run.seed): run for run in finished}
    references = _references(study.record)
    for run in finished:
        scores = logged[run.run_hash]
        tags = []
        verdict = _verdict_text(verdicts.get(run.variant.slug))
        if verdict not in (None, scores.verdict):
            tags.append(RunTag(VERDICT_TAG, verdict))
        compared = {}
        for name, slug in references.get(run.variant.slug, {}).items():
            reference = by_variant.get((slug, run.seed))
            if reference is not None:
                compared[name] = reference
        points = [*_differences(study.record, run, compared, logged)]
        if tags or points:
            store.client.log_batch(scores.run_id, metrics=points, tags=tags)


def _verdict_text(verdict: str | None) -> str | None:
    """Return a verdict that names the baseline, since the answer can be about averages over several variants."""
    if verdict is None or verdict == "baseline":
        return verdict
    return f"{verdict} (against the baseline)" if verdict else None


def _differences(
    record: ExperimentRecord,
    run: TrackedRun,
    compared: Mapping[str, TrackedRun],
    logged: Mapping[str | None, LoggedScores],
) -> Iterator[Metric]:
    """Yield the points of a run's differences that have changed.

    Of values of the same step, MLflow displays the latest. NaN replaces a difference that the run no longer has.

    Args:
        record: The study.
        run: A finished run.
        compared: The run to which each difference of the primary metric refers, by its name; for a baseline, the run
            itself, with a difference of 0.
        logged: The metrics of the finished runs by run hash.
    """
    from mlflow.entities import Metric

    now = round(1000 * time.time())
    scores = logged[run.run_hash]
    primary = record.metrics.primary
    curve = _curve(run)
    last = max(curve, default=0)
    to_baseline = difference_name(record)
    earlier = [name for name in scores.metrics if name.startswith(DIFFERENCE)]
    for name in dict.fromkeys([*compared, *earlier]):
        if name == DIFFERENCE + CURVE and name not in compared:
            continue
        difference = math.nan
        if name in compared:
            reference = logged[compared[name].run_hash]
            difference = scores.metric(primary) - reference.metric(primary)
        if str(difference) == str(scores.metric(name)):  # as texts, since NaN differs from itself
            continue
        yield Metric(name, difference, now, last)
        if name == to_baseline:
            baseline_curve = _curve(compared[name]) if name in compared else {}
            had_curve = math.isfinite(scores.metric(DIFFERENCE + CURVE))
            for step, value in curve.items():
                if had_curve or step in baseline_curve:
                    change = value - baseline_curve.get(step, math.nan)
                    yield Metric(DIFFERENCE + CURVE, change, now, step)


def _references(record: ExperimentRecord) -> dict[str, dict[str, str]]:
    """Return the variants to which differences of each variant refer, by the variant's slug and the metric's name.

    The difference of an axis refers to the variant that has the baseline's value of this axis alone, on the same data
    and size; without such a variant, it is left out. A variant that equals another one stands for that one.
    """
    references: dict[str, dict[str, str]] = {slug: {} for slug in record.by_slug}
    for slug, baseline in _baselines(record).items():
        references[slug][difference_name(record)] = baseline
    for axis in axes_with_differences(record):
        value = record.by_slug[record.baseline].axes.get(axis)
        for slug, variant in record.by_slug.items():
            axes = {**variant.axes, axis: value}
            reference = _trained(record, axes)
            if reference and comparison_group(axes) == comparison_group(variant.axes):
                references[slug].setdefault(difference_name(record, axis), reference)
    return references


def _trained(record: ExperimentRecord, axes: Mapping[str, object]) -> str | None:
    """Return the variant that was trained for these axes, or None."""
    for variant in record.variants:
        if variant.axes == axes:
            return variant.equal_to or variant.slug
    return None


def _baselines(record: ExperimentRecord) -> dict[str, str]:
    """Return the baseline of every variant that has one with its data and size; a baseline's is itself."""
    baselines = {}
    for contrast in record.contrasts:
        if contrast.family == "variant":
            baselines[contrast.variant] = contrast.against
            baselines[contrast.against] = contrast.against
    group = comparison_group(record.by_slug[record.baseline].axes)
    for slug, variant in record.by_slug.items():
        if comparison_group(variant.axes) == group:
            baselines[slug] = record.baseline
    return baselines


def _curve(run: TrackedRun) -> dict[int, float]:
    """Return the values of ``CURVE`` by step."""
    return {point.step: point.metrics[CURVE] for point in run.steps() if CURVE in point.metrics}
