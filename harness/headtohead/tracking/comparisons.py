"""The verdict on the variant of each MLflow run, and its differences to the baseline with the same seed."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path

from headtohead.planning.variants import comparison_group
from headtohead.storage.experiment import ExperimentRecord
from headtohead.tracking.run_page import RUN_HASH_TAG
from headtohead.tracking.store import Store
from headtohead.tracking.study import TrackedRun, TrackedStudy

VERDICT_TAG = "h2h.verdict"
DIFFERENCE = "diff/"
"""Prefix of the metrics that are a run's value minus that of the baseline's run with the same seed, data and size."""
CURVE = "valid/loss"
"""The metric that also has differences of each step."""


def log_comparisons(
    store: Store, experiment_id: str, study: TrackedStudy, table: Path | None
) -> None:
    """Log verdicts and differences to the finished runs of a study, if they have changed.

    ``table`` is ``results.csv`` of the report, which has the verdicts; without it there are none.
    """
    from mlflow.entities import Metric, RunTag

    verdicts, primary, logged = dict[str, str](), study.record.metrics.primary, {}
    if table is not None and table.is_file():
        with table.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)  # a report of an earlier version may lack a column
            judged = {
                row["variant"]: row["verdict"]
                for row in rows
                if row.get("variant") and row.get("verdict")
            }
            # The answer can be about averages over several variants.
            verdicts = {
                slug: own + " (against the baseline)" * (own != "baseline")
                for slug, own in judged.items()
            }
    for found in store.runs(experiment_id, "attributes.status = 'FINISHED'"):
        metrics, tags = found.data.metrics, found.data.tags
        values = (
            metrics.get(primary, math.nan),
            metrics.get(DIFFERENCE + primary, math.nan),
            tags.get(VERDICT_TAG),
        )
        logged[tags.get(RUN_HASH_TAG)] = (found.info.run_id, *values)
    finished = [run for run in study.runs() if run.run_hash in logged]
    baselines, by_variant = (
        _baselines(study.record),
        {(run.variant.slug, run.seed): run for run in finished},
    )
    for run in finished:
        run_id, score, earlier, verdict = logged[run.run_hash]
        fresh = (
            {VERDICT_TAG: new}
            if (new := verdicts.get(run.variant.slug)) not in (None, verdict)
            else {}
        )
        points, baseline = (
            list[Metric](),
            by_variant.get((baselines.get(run.variant.slug, ""), run.seed), run),
        )
        difference = math.nan if baseline is run else score - logged[baseline.run_hash][1]
        if str(difference) != str(earlier):
            # Of values of the same step, MLflow displays the latest. NaN replaces a difference to an earlier baseline.
            own, others, now = (
                _curve(run),
                {} if baseline is run else _curve(baseline),
                round(1000 * time.time()),
            )
            steps = own if math.isfinite(earlier) else own.keys() & others.keys()
            changes = {step: own[step] - others.get(step, math.nan) for step in steps}
            points = [
                Metric(DIFFERENCE + CURVE, change, now, step) for step, change in changes.items()
            ]
            points.append(Metric(DIFFERENCE + primary, difference, now, max(own, default=0)))
        if fresh or points:
            store.client.log_batch(
                run_id, metrics=points, tags=[RunTag(name, value) for name, value in fresh.items()]
            )


def _baselines(record: ExperimentRecord) -> dict[str, str]:
    """Return the baseline of every variant that has one with its data and size."""
    group = comparison_group(record.by_slug[record.baseline].axes)
    alike = {
        slug: record.baseline
        for slug, own in record.by_slug.items()
        if comparison_group(own.axes) == group
    }
    contrasts = (contrast for contrast in record.contrasts if contrast.family == "variant")
    return {contrast.variant: contrast.against for contrast in contrasts} | alike


def _curve(run: TrackedRun) -> dict[int, float]:
    """Return the values of ``CURVE`` by step."""
    return {point.step: point.metrics[CURVE] for point in run.steps() if CURVE in point.metrics}
