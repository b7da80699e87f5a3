"""The sections on training: curves, and whether the runs trained far enough."""

from __future__ import annotations

import math
from collections import Counter

from headtohead.analysis.convergence import LOSS, NOT_JUDGED, Convergence, LossTrend
from headtohead.analysis.findings.training import gap_steps, show_passes
from headtohead.report.content import Report
from headtohead.report.figures.lines import MAX_LINES
from headtohead.report.section import Section, table
from headtohead.storage.metrics import show

VERDICTS = (
    "Variants: {verdicts}. A variant counts as still learning if over the last fifth of the steps its loss, fitted by "
    "a line, falls by more than 1 %, by more than 0.01 nats and by more than two standard errors."
)
DECAYING = (
    " The learning rate decays ({schedules}), which flattens the loss: a flat loss has the verdict 'schedule "
    "ended'."
)
NONE_JUDGED = "Whether the variants still learn is not judged: {reason}."
CURVES = (
    "Mean over seeds; the band ranges from the lowest to the highest seed. Steps that not every seed reached are "
    "omitted. Grey in every panel: the baseline, {baseline}. Lower is better; a line that still falls at its end needs "
    "more steps."
)
PACE = (
    "Steps in which the baseline's validation loss falls by the difference, at the pace of the last "
    "fifth of the steps."
)


def training_section(report: Report) -> Section:
    """Return the training curves, the fall of each variant's loss, and the differences in steps of the baseline.

    If no variant is judged, all for the same reason, the section states this reason instead of the table. The
    differences in steps are left out unless the baseline is still learning and a contrast has comparable losses.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    frames = report.analysis.frames
    training = report.analysis.convergence
    trends = training.trends.values()
    verdicts = Counter(trend.verdict for trend in trends)
    reasons = {trend.reason for trend in trends}
    frame = None
    if verdicts.keys() == {NOT_JUDGED} and len(reasons) == 1:
        text = NONE_JUDGED.format(reason=reasons.pop())
    else:
        counts = [f"{count} {verdict}" for verdict, count in verdicts.items()]
        text = VERDICTS.format(verdicts=", ".join(counts))
        if training.decaying:
            text += DECAYING.format(schedules=", ".join(training.decaying))
        rows = _trend_rows(report, training)
        frame = table(rows)
    parts = []
    if training.gaps:
        gap_rows = _gap_rows(report)
        parts.append(Section("Differences in steps", PACE, frame=table(gap_rows)))
    return Section(
        "Training",
        text,
        hint="curves, and whether the variants still learn",
        figure="curves",
        caption=CURVES.format(baseline=report.title(frames.baseline)) + report.shown(MAX_LINES),
        frame=frame,
        parts=parts,
    )


def _trend_rows(report: Report, training: Convergence) -> list[dict[str, str]]:
    """Return a row per variant: its loss near the end, the fall until the end with its standard error, and the verdict.

    Variants that equal another one have no row. What was not measured is a dash, and the reason is below the verdict.
    With more variants than a table has rows, only the best ones and the baseline have one.
    """
    rows = []
    for slug in report.listed:
        trend = training.trends.get(slug)
        if trend is None:
            continue
        row = {"variant": report.title(slug)}
        row["seeds"] = str(trend.n)
        row["validation loss at 80 % of the steps"] = show(trend.loss, LOSS)
        row["fall until the end"] = _fall(trend)
        row["standard error over seeds"] = show(trend.error, LOSS)
        row["passes over the data"] = _passes(trend)
        row["verdict"] = trend.verdict
        if trend.reason:
            row["verdict"] += f"\n{trend.reason}"
        rows.append(row)
    return rows


def _fall(trend: LossTrend) -> str:
    """Return the fall of the loss in nats and in percent; a dash if it was not measured."""
    if math.isnan(trend.fall):
        return "–"
    percent = f"{100 * trend.fraction:.1f} %".replace("-", "−")
    return f"{show(trend.fall, LOSS)}\n{percent}"


def _passes(trend: LossTrend) -> str:
    """Return the passes over the training data; a dash if they are unknown."""
    return "–" if math.isnan(trend.passes) else show_passes(trend.passes)


def _gap_rows(report: Report) -> list[dict[str, str]]:
    """Return a row per contrast with a gap: its difference in validation loss, and the steps that make up for it.

    These are the steps in which the baseline's loss falls by the difference. Empty without gaps.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    training = report.analysis.convergence
    rows = []
    for gap in training.gaps:
        row = {"contrast": gap.contrast.name}
        row["difference in validation loss"] = show(gap.difference, LOSS, signed=True)
        row["in steps of the baseline"] = gap_steps(gap, training)
        rows.append(row)
    return rows
