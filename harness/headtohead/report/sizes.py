"""The sections on sizes: whether variants keep their order, and predictions of the effects at the largest size."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from headtohead.analysis.order_transfer import OrderTransfer, order_transfer
from headtohead.analysis.size_prediction import Prediction, size_predictions
from headtohead.analysis.wording import ends
from headtohead.config.labels import text as value_text
from headtohead.report.content import Report
from headtohead.report.section import Section, percent, table
from headtohead.storage.metrics import show

TRANSFER = (
    "Pairs of variants with the same order of mean {metric} at two successive sizes (decision accuracy; Magnusson et "
    "al. 2025), with the range in 95 % of the resamples of seeds. With few seeds this range is narrower than a "
    "confidence interval. A random order keeps half of the pairs. Verdicts are read off simultaneous 95 % intervals of "
    "all pairs of a size; no difference shown at both sizes is the same verdict. Pairs with different data or equal "
    "means are left out."
)
PREDICTIONS = (
    "Effects on {metric} at {largest}, against the baseline of this size, and two predictions. By a line: through the "
    "effects at the {smaller} smaller sizes, over the logarithm of the baseline's parameters without embeddings. As at "
    "{next}: the effect does not change. In brackets: 95 % prediction intervals, each for one effect; they include the "
    "variance of the effects at every size, but not that effects may not follow a line. Missed: the measured effect is "
    "outside the interval.{line}{same}"
)
OF_LINE = " By the line: {summary}"
OF_SAME = " As at {next}: {summary}"
PREDICTED = "{right} of {changes} effects inside, mean absolute error {error}, mean width of an interval {width}."


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
    """Return the effects at the largest size with two predictions of each; None without `size_predictions`.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    found = size_predictions(report.analysis)
    if found is None:
        return None
    metric = report.analysis.metric
    *smaller, largest = [value_text(size) for size in found.sizes]
    columns = ("by a line", f"as at {smaller[-1]}")
    rows = []
    for change in found.changes:
        row = {"change": change.name, f"at {largest}": show(change.measured, metric, signed=True)}
        for column, prediction in zip(columns, change.predictions, strict=True):
            row[column] = _prediction_cell(prediction, metric)
        rows.append(row)
    by_line, by_same_effect = zip(*(change.predictions for change in found.changes), strict=True)
    text = PREDICTIONS.format(
        metric=report.metric,
        largest=largest,
        smaller=len(smaller),
        next=smaller[-1],
        line=OF_LINE.format(summary=_summary(by_line, metric)),
        same=OF_SAME.format(next=smaller[-1], summary=_summary(by_same_effect, metric)),
    )
    return Section("Effects at the largest size", text, frame=table(rows))


def _prediction_cell(prediction: Prediction, metric: str) -> str:
    """Return a predicted effect, its interval, and whether this does not contain the measured effect."""
    low, high = prediction.low, prediction.high
    lines = [show(prediction.effect, metric, signed=True), ends(low, high, metric, signed=True)]
    if not prediction.is_right:
        lines.append("missed")
    return "\n".join(lines)


def _summary(predictions: Sequence[Prediction], metric: str) -> str:
    """Return how many intervals contain the measured effect, with the mean error and the mean width."""
    right = sum(prediction.is_right for prediction in predictions)
    error = fmean(abs(prediction.error) for prediction in predictions)
    width = fmean(2 * prediction.half_width for prediction in predictions)
    return PREDICTED.format(
        right=right,
        changes=len(predictions),
        error=show(error, metric),
        width=show(width, metric),
    )
