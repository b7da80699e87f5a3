"""The sections on sizes: whether variants keep their order, and predictions of the effects at the largest size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from headtohead.analysis.order_transfer import OrderTransfer, order_transfer
from headtohead.analysis.size_prediction import Prediction
from headtohead.analysis.wording import ends
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.report.content import Report
from headtohead.report.section import Section, percent, table
from headtohead.storage.metrics import counted, show

TRANSFER = (
    "Pairs of variants with the same order of mean {metric} at two successive sizes (decision accuracy; Magnusson et "
    "al. 2025), with the range in 95 % of the resamples of seeds. With few seeds this range is narrower than a "
    "confidence interval. A random order keeps half of the pairs. Verdicts are read off simultaneous 95 % intervals of "
    "all pairs of a size; no difference shown at both sizes is the same verdict. Pairs with different data or equal "
    "means are left out."
)
PREDICTIONS = (
    "Effects on {metric} at {largest}, against the baseline of this size, beside two predictions. By a line: fitted to "
    "the effects at the {smaller} smaller sizes, over the logarithm of the baseline's parameters without embeddings. "
    "As at {last}: the same effect as there. Each prediction has its own 95 % interval for the measured effect, with "
    "the variance of {sources}; “missed” if this is outside. The line misses {by_line}; the same effect as at {last} "
    "misses {by_same_effect}.{omitted}"
)
MISSED = "{missed} of {effects} (mean absolute error {error}, mean width of an interval {width})"
OMITTED = " Without a prediction: {names}."
MAX_OMITTED = 5
"""Maximum number of changes without a prediction that the text names."""


def transfer_section(report: Report) -> Section | None:
    """Return how many pairs of variants keep order and verdict from one size to the next; None without an entry.

    `order_transfer` states which sizes have one.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    rows = [_transfer_row(transfer) for transfer in order_transfer(report.analysis)]
    if not rows:
        return None
    return Section("Order transfer", TRANSFER.format(metric=report.metric), frame=table(rows))


def _transfer_row(transfer: OrderTransfer) -> dict[str, str]:
    """Return the row of two successive sizes: counts of pairs, and the range of the same order over resampled seeds."""
    counts = transfer.counts
    interval = transfer.order_range
    same_order = f"{counts.same_order} of {counts.pairs}\n{percent(interval.low)} to {percent(interval.high)}"
    return {
        "sizes": f"{value_text(transfer.small)} → {value_text(transfer.large)}",
        "variants": str(transfer.num_variants),
        "pairs with the same order": same_order,
        "pairs with the same verdict": f"{counts.same_verdict} of {counts.pairs}",
        "same direction at both sizes": str(counts.same_direction),
        "opposite verdicts": str(counts.reversed),
    }


def prediction_section(report: Report) -> Section | None:
    """Return the effects at the largest size with two predictions of each; None without `Report.size_predictions`.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    predicted = report.size_predictions
    if predicted is None:
        return None
    metric = report.analysis.metric
    *smaller, largest = [value_text(size) for size in predicted.sizes]
    columns = ("by a line", f"as at {smaller[-1]}")
    rows = []
    sources: dict[str, None] = {}
    for change in predicted.changes:
        row = {"change": change.name, f"at {largest}": show(change.measured, metric, signed=True)}
        for column, prediction in zip(columns, change.predictions, strict=True):
            row[column] = _prediction_cell(prediction, metric)
            sources.update(dict.fromkeys(source.name for source in prediction.error.sources))
        rows.append(row | {"seeds": str(change.seeds)})
    by_line = [change.by_line for change in predicted.changes]
    by_same_effect = [change.by_same_effect for change in predicted.changes]
    omitted = ""
    if predicted.omitted:
        omitted = OMITTED.format(names=listed(predicted.omitted, most=MAX_OMITTED))
    text = PREDICTIONS.format(
        metric=report.metric,
        largest=largest,
        smaller=len(smaller),
        last=smaller[-1],
        sources=listed([*sources]),
        by_line=_misses(by_line, metric),
        by_same_effect=_misses(by_same_effect, metric),
        omitted=omitted,
    )
    return Section("Effects at the largest size", text, frame=table(rows))


def _prediction_cell(prediction: Prediction, metric: str) -> str:
    """Return a predicted effect, its interval, and *missed* if the measured effect is outside."""
    lines = [
        show(prediction.effect, metric, signed=True),
        ends(prediction.low, prediction.high, metric, signed=True),
    ]
    if prediction.is_missed:
        lines.append("missed")
    return "\n".join(lines)


def _misses(predictions: Sequence[Prediction], metric: str) -> str:
    """Return how many effects the predictions miss, with the mean absolute error and the mean width of an interval."""
    missed = sum(prediction.is_missed for prediction in predictions)
    error = fmean(abs(prediction.error.mean) for prediction in predictions)
    width = fmean(2 * prediction.half_width for prediction in predictions)
    return MISSED.format(
        missed=missed,
        effects=counted(len(predictions), "effect"),
        error=show(error, metric),
        width=show(width, metric),
    )
