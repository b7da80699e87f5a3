"""The metrics of an experiment: names that its runs measure, with the defaults of the dataset."""

from __future__ import annotations

from collections.abc import Iterable

from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation
from headtohead.data.metrics import DERIVED, KNOWN, find_metric, task_metrics
from headtohead.errors import nearest
from headtohead.schema.metric import measured, of_heads
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import MetricRecord, ReportedMetrics

BY_STACK = (
    "'{metric}' is measured for a stack, the runs that train together, so its seeds do not repeat the measurement; "
    "list it in metrics.report"
)


def check_metric(
    name: str | None,
    config: RunConfig,
    location: SourceLocation,
    *,
    of_heads_too: bool = False,
    compared: bool = False,
) -> None:
    """Raise unless the runs of a configuration measure a metric.

    Args:
        name: The metric, such as ``test/exact_match``; None is valid.
        config: A variant of the experiment.
        location: Location of the name in the file.
        of_heads_too: Whether metrics of ``h2h ablate-heads`` are valid too.
        compared: Whether variants are compared by the metric.

    Raises:
        HeadToHeadError: If the runs do not measure it, with the nearest name; or if the dataset is unknown or declares
            a metric with a reserved name. With ``compared``, also if the seeds do not repeat its measurement; if two
            datasets declare different metrics of this name, or any dataset one with a reserved name.
    """
    if name is None:
        return
    task = task_metrics(config.data.dataset)
    stored = {metric.name for metric in task}
    names = list(measured(task, config.roles))
    for derived in DERIVED:
        if derived.counts_of in stored:
            names.append(f"test/{derived.name}")
    if of_heads_too:
        names += of_heads(task, config.roles)
    if name not in names:
        raise location.error(f"unknown metric '{name}'{nearest(name, names)}")
    if not compared:
        return
    metric = find_metric(name)
    assert metric is not None, "every name of the list is that of a metric"
    if metric.by_stack:
        raise location.error(BY_STACK.format(metric=name))


def reported_metrics(loaded: LoadedExperiment, config: RunConfig) -> ReportedMetrics:
    """Return the metrics of the report, checked; the defaults are those of the dataset of ``config``.

    The default primary metric is the first of the dataset; by default the report has ``valid/loss`` and the others.
    Margins by metric are checked too.

    Raises:
        HeadToHeadError: With the location in the file, if runs do not measure a metric, or the primary metric is
            neither better high nor better low. Also if the dataset is unknown, a dataset declares a metric with a
            reserved name, or two datasets declare different metrics of the name of the primary metric.
    """
    metrics = loaded.file.metrics
    location = loaded.location("metrics")
    first, *others = task_metrics(config.data.dataset)
    primary = metrics.primary or f"test/{first.name}"
    check_metric(primary, config, location.child("primary"), compared=True)
    metric = find_metric(primary)
    if metric is not None and metric.higher_is_better is None:
        raise location.child("primary").error(
            f"'{primary}' is neither better high nor better low; list it in metrics.report"
        )
    report = metrics.report
    if report is None:
        report = ("valid/loss", *(f"test/{metric.name}" for metric in others))
    for number, name in enumerate(report):
        check_metric(name, config, location.child("report").child(number))
    if isinstance(loaded.file.margin, dict):
        for name in loaded.file.margin:
            check_metric(name, config, loaded.location("margin", name))
    return ReportedMetrics(primary=primary, report=report)


def declared_metrics(datasets: Iterable[str]) -> dict[str, MetricRecord]:
    """Return the records of the metrics that only these datasets have, by name.

    Raises:
        HeadToHeadError: If a dataset is unknown or declares a metric with a reserved name.
    """
    declared = {}
    for dataset in sorted(set(datasets)):
        for metric in task_metrics(dataset):
            if metric.name not in KNOWN:
                declared[metric.name] = MetricRecord.of(metric)
    return declared
