"""The sections on training: curves, and whether the runs trained far enough."""

from __future__ import annotations

import math
from collections import Counter

from headtohead.analysis.convergence import LOSS, NOT_JUDGED
from headtohead.analysis.findings.training import gap_steps, show_passes
from headtohead.analysis.wording import contrast_name
from headtohead.report.content import Report
from headtohead.report.figures.lines import MAX_LINES
from headtohead.report.section import Section, table
from headtohead.storage.metrics import show

PACE = (
    "Steps in which the baseline's validation loss falls by the difference, at the pace of the last "
    "fifth of the steps."
)


def training_section(report: Report) -> Section:
    """Return the training curves, the fall of each variant's loss, and the differences in steps of the baseline."""
    analysis, found = report.analysis, report.analysis.convergence
    rows = []
    for slug in (slug for slug in report.listed if slug in found.trends):
        trend = found.trends[slug]
        percent = f"{100 * trend.fraction:.1f} %".replace("-", "−")
        fall = "–" if math.isnan(trend.fall) else f"{show(trend.fall, LOSS)}\n{percent}"
        rows.append(
            {
                "variant": report.title(slug),
                "seeds": str(trend.n),
                "validation loss at 80 % of the steps": show(trend.loss, LOSS),
                "fall until the end": fall,
                "standard error over seeds": show(trend.error, LOSS),
                "passes over the data": "–"
                if math.isnan(trend.passes)
                else show_passes(trend.passes),
                "verdict": "\n".join(filter(None, [trend.verdict, trend.reason])),
            }
        )
    gaps = [
        {
            "contrast": contrast_name(analysis, gap.contrast),
            "difference in validation loss": show(gap.difference, LOSS, signed=True),
            "in steps of the baseline": gap_steps(gap, found),
        }
        for gap in found.gaps
    ]
    trends = found.trends.values()
    counts, reasons = Counter(trend.verdict for trend in trends), {trend.reason for trend in trends}
    text = (
        f"Variants: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}. A variant counts as still "
        "learning if over the last fifth of the steps its loss, fitted by a line, falls by more than 1 %, by more than "
        "0.01 nats and by more than two standard errors."
    )
    if found.decaying:
        text += (
            f" The learning rate decays ({', '.join(found.decaying)}), which flattens the loss: a flat loss has "
            "the verdict 'schedule ended'."
        )
    if counts.keys() == {NOT_JUDGED} and len(reasons) == 1:
        text, rows = f"Whether the variants still learn is not judged: {reasons.pop()}.", []
    return Section(
        "Training",
        text,
        figure="curves",
        caption="Mean over seeds; the band ranges from the lowest to the highest seed. Steps that not every seed "
        "reached are omitted." + report.shown(MAX_LINES),
        frame=table(rows),
        parts=[Section("Differences in steps", PACE, frame=table(gaps))] if gaps else [],
    )
