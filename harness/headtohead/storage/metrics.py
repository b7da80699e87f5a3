"""Properties of metrics by name: direction, range, readable name and number format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from headtohead.errors import HeadToHeadError
from headtohead.schema.metric import (
    HEAD_EFFECTS,
    HOST,
    LOSS,
    PERPLEXITY,
    TEACHER_FORCED,
    UNPADDED,
    Metric,
    leaf,
)
from headtohead.schema.roles import ROLE_NAMES
from headtohead_judge.numbers import counted as counted
from headtohead_judge.numbers import decimals_of as decimals_of
from headtohead_judge.numbers import show_p as show_p

SPLITS = {"valid": "validation"}
"""Readable names of splits that have another name in metrics."""

TASK = ("valid/", "test/", "heads/")
"""Beginnings of the names of metrics that a dataset can declare."""

ZERO = 1e-12
"""Smaller values are rounding errors."""

ROUNDING = 1e-6
"""Tolerance of ranges: sacreBLEU returns 100.00000000000004 for equal texts."""


_described: dict[str, Metric] = {}
"""The metrics of datasets as the record that was read last describes them, by name."""


def describe(metrics: Iterable[Metric]) -> None:
    """Give metrics of datasets the meaning that the record of an experiment states.

    The description counts until another record describes a metric of the same name, whichever plugins are loaded.
    """
    for metric in metrics:
        _described[metric.name] = metric
    _spans.clear()


def find(name: str) -> Metric | None:
    """Return the metric of a name such as ``test/exact_match``.

    A metric of a dataset is that of the record that was read last, else that of a registered dataset. None if neither
    has it.
    """
    metric = HOST.get(leaf(name))
    if metric is None and name.startswith(TASK):
        from headtohead.data.metrics import KNOWN, find_metric  # may load the registry of datasets

        metric = KNOWN.get(leaf(name)) or _described.get(leaf(name))
        if metric is None:
            metric = find_metric(name)
    return metric


def is_by_stack(name: str) -> bool:
    """Return whether runs that train together have a single measurement of a metric, such as tokens per second."""
    metric = find(name)
    return metric is not None and metric.by_stack


def derived(buckets: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics that runs do not store, over all test sentences, from the counts of a run's buckets."""
    from headtohead.data.metrics import DERIVED

    counts = [bucket.get("counts", {}) for bucket in buckets]
    if not counts:
        return {}
    metrics = {}
    for metric in DERIVED:
        if metric.pool and all(metric.counts_of in of_bucket for of_bucket in counts):
            by_bucket = [of_bucket[metric.counts_of] for of_bucket in counts]
            totals = [sum(values) for values in zip(*by_bucket, strict=True)]
            metrics[f"test/{metric.name}"] = metric.pool(totals)
    return metrics


def as_ratio(metric: str) -> str | None:
    """Return the metric with differences that are logs of ratios of the errors of ``metric``, or None.

    >>> as_ratio("test/exact_match"), as_ratio("test/bleu")
    ('test/log_error', None)
    """
    from headtohead.data.metrics import DERIVED

    for derived_metric in DERIVED:
        if metric == f"test/{derived_metric.counts_of}":
            return f"test/{derived_metric.name}"
    return None


def stored(metric: str) -> str:
    """Return the stored metric that has the counts of a derived metric; other metrics are returned unchanged.

    >>> stored("test/log_error"), stored("test/bleu")
    ('test/exact_match', 'test/bleu')
    """
    declared = find(metric)
    if declared is None or not declared.counts_of:
        return metric
    return f"test/{declared.counts_of}"


def higher_is_better(name: str) -> bool | None:
    """Return whether larger values of a metric are better; None for a metric without a direction.

    Raises:
        HeadToHeadError: If no record that was read and no registered dataset declares the metric.
    """
    metric = find(name)
    if metric is None:
        raise HeadToHeadError(
            f"no dataset declares the metric '{name}'; load the plugin of its dataset with --plugin"
        )
    return metric.higher_is_better


_spans: dict[str, tuple[float, float]] = {}


def span(metric: str) -> tuple[float, float]:
    """Return the minimum and maximum of a metric; effects of masking heads are unbounded.

    >>> span("test/bleu"), span("heads/cross/only-one/loss")
    ((0.0, 100.0), (-inf, inf))
    """
    if metric in _spans:
        return _spans[metric]
    declared = None
    if not metric.startswith("heads/"):
        declared = find(metric)
    if declared is None:  # not stored, since a dataset that declares it may be registered later
        return (-math.inf, math.inf)
    _spans[metric] = declared.range
    return declared.range


def in_range(metric: str, value: object) -> bool:
    """Return whether a value is missing (None or NaN) or a number in the range of the metric.

    >>> in_range("test/exact_match", 0.5), in_range("test/exact_match", 1.5), in_range("valid/loss", "0.5")
    (True, False, False)
    """
    if value is None:
        return True
    if type(value) is int:
        if abs(value) >= 2**63:
            return False
        value = float(value)
    if type(value) is not float:
        return False
    low, high = span(metric)
    return value != value or low - ROUNDING <= value <= high + ROUNDING


def is_at_end(metric: str, value: float) -> bool:
    """Return whether a value is the minimum or maximum of its metric; False for an end that is infinite.

    >>> is_at_end("test/exact_match", 1.0), is_at_end("test/exact_match", 0.999), is_at_end("test/loss", math.inf)
    (True, False, False)
    """
    if not math.isfinite(value):
        return False
    return any(abs(value - end) <= ROUNDING for end in span(metric))


def is_loss(metric: str) -> bool:
    """Return whether the metric is a loss or a perplexity."""
    return leaf(metric) in (LOSS.name, PERPLEXITY.name)


def is_per_token(metric: str) -> bool:
    """Return whether the metric is a mean over target tokens, which are comparable only at equal vocabularies."""
    return leaf(metric) in {declared.name for declared in TEACHER_FORCED}


def unpadded(metric: str) -> str:
    """Return the name of the same score measured with batches of a single sentence, which have no padding."""
    return f"{metric}{UNPADDED}"


def readable(metric: str) -> str:
    """Return the readable name of a metric, for example ``validation loss``; only the test has an ``exact match``."""
    split, _, name = metric.rpartition("/")
    declared = find(metric)
    words = declared.words if declared else name.replace("_", " ")
    if name.endswith(UNPADDED):
        words += ", one sentence at a time"
    if split.startswith("heads/"):
        _, role, effect = split.split("/")
        return f"{words} changed by {HEAD_EFFECTS[effect]}, {ROLE_NAMES[role]}"
    has_split = split and (split != "test" or declared in TEACHER_FORCED)
    return f"{SPLITS.get(split, split)} {words}" if has_split else words


def with_unit(metric: str) -> str:
    """Return the readable name of a metric and its unit, for example ``test loss (nats per token)``."""
    declared = find(metric)
    if declared is None or not declared.unit:
        return readable(metric)
    return f"{readable(metric)} ({declared.unit})"


def decimals(metric: str) -> int:
    """Return the number of printed decimals of a metric."""
    declared = find(metric)
    return declared.decimals if declared else 3


def show(
    value: float | None, metric: str, *, signed: bool = False, digits: int = 0, like: float = 0.0
) -> str:
    """Format a value for reports; a missing value is an en dash.

    It has the decimals of its metric and ``digits`` more, and at least those of ``like``, a margin; at most 8. A
    nonzero value that would round to zero is printed with its first significant digit.
    """
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    precision = max(decimals(metric) + digits, min(8, decimals_of(like)))
    if size < ZERO:
        return f"{0.0:.{precision}f}"
    text = f"{size:,.{_precision(size, precision)}f}"
    if value < 0:
        return f"−{text}"
    return f"+{text}" if signed else text


def rounded(value: float, metric: str) -> float:
    """Return a finite value with the digits that `show` prints.

    >>> rounded(0.0071264, "test/exact_match"), rounded(0.000216, "test/exact_match")
    (0.007, 0.0002)
    """
    if abs(value) < ZERO:
        return 0.0
    return round(value, _precision(abs(value), decimals(metric)))


def _precision(size: float, precision: int) -> int:
    """Return a number of decimals, more of them for a size above 0 that would round to 0."""
    return -math.floor(math.log10(size)) if size < 0.5 * 10**-precision else precision


def show_count(value: float | None) -> str:
    """Format a large count with three significant digits: ``48.2 k``, ``1.35 M``."""
    if value is None or not math.isfinite(value):
        return "–"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            precision = 0
            if abs(scaled) < 10:
                precision = 2
            elif abs(scaled) < 100:
                precision = 1
            return f"{scaled:.{precision}f} {unit}"
    return f"{value:.0f}"
