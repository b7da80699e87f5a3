"""The sections on training: curves, whether the runs trained far enough, and steps to target."""

from __future__ import annotations

import math
from collections import Counter

from headtohead.analysis.convergence import LOSS, NOT_JUDGED
from headtohead.analysis.targets import VariantTarget
from headtohead.report.content import Report
from headtohead.report.figures.lines import MAX_LINES
from headtohead.report.remarks import gap_steps
from headtohead.report.section import Section, contrast_name, table
from headtohead.storage.metrics import readable, show, show_p
from headtohead.storage.progress import duration

PACE = (
    "Steps in which the baseline's validation loss falls by the difference, at the pace of the last fifth of the steps."
)


def training_section(report: Report) -> Section:
    """Return the training curves, the fall of each variant's loss, and the differences in steps of the baseline."""
    analysis, found = report.analysis, report.analysis.convergence
    rows = []
    for slug in (slug for slug in report.listed if slug in found.trends):
        trend = found.trends[slug]
        fall = "–" if math.isnan(trend.fall) else f"{show(trend.fall, LOSS)}\n{100 * trend.fraction:.1f} %"
        rows.append(
            {
                "variant": report.title(slug),
                "seeds": str(trend.n),
                "validation loss at 80 % of the steps": show(trend.loss, LOSS),
                "fall until the end": fall,
                "standard error over seeds": show(trend.error, LOSS),
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
        f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}. Still learning: over the last fifth "
        "of the steps the loss, fitted by a line, falls by more than each of 1 %, 0.01 nats and two standard errors."
    )
    if found.decaying:
        text += f" The learning rate decays to zero ({', '.join(found.decaying)}), which levels off any loss."
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


def target_section(report: Report) -> Section | None:
    """Return a table per target, or None without targets."""
    found = report.analysis.targets
    if not found:
        return None
    return Section(
        "Steps to target",
        "The step of the first evaluation that reaches the target; a run that never reaches it counts as infinite (∞). "
        "Medians over seeds, and a sign test against the baseline, adjusted by Holm over the variants and by the "
        "number of planned looks. Time is the training time of a stack without evaluations.",
        parts=[
            Section(
                f"Target: {readable(target.metric)} {show(target.value, target.metric)}"
                if target.value is not None
                else f"Target: the baseline's final {readable(target.metric)} with the same seed",
                frame=table(
                    {"variant": report.title(slug), **_target(target.variants[slug])} for slug in report.listed
                ),
            )
            for target in found
        ],
    )


def _target(found: VariantTarget) -> dict[str, str]:
    steps, seconds = found.median_steps, found.median_seconds
    unknown = "∞" if math.isinf(steps) else "–"
    return {
        "reached": f"{found.reached} of {len(found.steps)}",
        "median steps": f"{steps:,.0f}" if math.isfinite(steps) else unknown,
        "median time": duration(seconds) if math.isfinite(seconds) else unknown,
        "seeds earlier, later": f"{found.earlier}, {found.later}" if found.verdict is not None else "–",
        "sign test Holm p": show_p(found.holm_p),
        "against baseline": found.verdict or found.reason or "–",
    }
