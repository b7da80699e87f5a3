"""Table cells that several sections use: means, differences, verdicts and tests."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import Contrast
from headtohead.report.blocks import CellNote, Column, TableCell, VerdictLabel
from headtohead.statistics.paired_tests import CONFIDENCE, Interval, Paired, Summary
from headtohead.storage.metrics import show, show_p


def blank(reason: str = "") -> TableCell:
    """Return a cell without a value; ``reason`` is its tooltip."""
    return TableCell("–", tooltip=reason)


def mean_cell(mean: str, low: float, high: float, metric: str) -> TableCell:
    """Return a mean with its interval, if the interval is finite."""
    return TableCell(mean, (CellNote(f"{show(low, metric)} to {show(high, metric)}"),) if math.isfinite(low) else ())


def score_cell(summary: Summary, metric: str) -> TableCell:
    """Return a mean over seeds with its interval."""
    return mean_cell(show(summary.mean, metric), summary.low, summary.high, metric)


def paired_cell(paired: Paired | None, metric: str, reason: str | None = None) -> TableCell:
    """Return a difference with its interval, or ``reason`` as the tooltip of a blank cell."""
    if paired is None:
        return blank(reason or "")
    return mean_cell(show(paired.mean, metric, signed=True), paired.low, paired.high, metric)


def difference_cell(contrast: Contrast | None) -> TableCell:
    """Return the difference of a contrast with its 95 % interval, or a blank cell."""
    if contrast is None or contrast.paired is None:
        return blank(contrast.reason or contrast.verdict if contrast else "")
    return paired_cell(contrast.paired, contrast.metric)


def show_interval(interval: Interval, metric: str) -> str:
    """Format an interval with its level: ``98.75 %: -0.010 to 0.023``."""
    return f"{interval.percent}: {show(interval.low, metric)} to {show(interval.high, metric)}"


def verdict_columns(tested: int, unit: str) -> tuple[Column, ...]:
    """Return the columns of `verdict_cells`; ``tested`` is the number of contrasts in Holm's correction."""
    return (
        Column("verdict", align="left"),
        Column("Holm\np", tooltip=f"paired t-test, Holm-adjusted over {tested} {unit}"),
        Column("sign-\nflip p", tooltip="not adjusted"),
        Column("effect", tooltip="mean difference divided by its standard deviation, Hedges-corrected (d_z)"),
    )


def verdict_cells(contrast: Contrast | None, *, with_reason: bool = True) -> tuple[TableCell, ...]:
    """Return verdict, Holm-adjusted p, sign-flip p and effect size of a contrast."""
    paired = contrast.paired if contrast else None
    return (
        verdict_cell(contrast, with_reason=with_reason),
        TableCell(show_p(contrast.judgement.holm_p if contrast else None)),
        TableCell(show_p(paired.sign_flip_p if paired else None)),
        TableCell(show(paired.effect if paired else None, "system/effect", signed=True)),
    )


def verdict_cell(contrast: Contrast | None, *, with_reason: bool = True) -> TableCell:
    """Return the verdict of a contrast, with its reason and the intervals of its tests as details."""
    if contrast is None:
        return TableCell(VerdictLabel("–", "none"))
    label = VerdictLabel(contrast.verdict_name, contrast.verdict if contrast.detected else "none")
    notes = [contrast.reason] if contrast.reason and with_reason else []
    judgement, metric = contrast.judgement, contrast.metric
    if judgement.interval and judgement.interval.level != CONFIDENCE:
        notes.append(show_interval(judgement.interval, metric))
    if test := judgement.equivalence:
        criterion = f"equivalence within {show(test.margin, metric)}{contrast.margin_note}"
        notes.append(f"{criterion}: p {show_p(test.holm_p)}, {show_interval(test.interval, metric)}")
    return TableCell(label, tuple(CellNote(note, "details") for note in notes))
