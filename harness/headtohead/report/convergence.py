"""Whether the runs trained far enough: a line beside the answer, and a table with the training curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from headtohead.analysis.convergence import (
    LEVELLED_OFF,
    LOSS,
    NO_LOSS,
    NOT_JUDGED,
    STILL_LEARNING,
    Convergence,
    LossTrend,
    StepGap,
    TrendVerdict,
)
from headtohead.analysis.study import Analysis
from headtohead.report.blocks import Block, BulletList, Column, DataTable, Details, TableCell, TableRow
from headtohead.report.cells import blank
from headtohead.report.json_values import number
from headtohead.storage.metrics import show


def still_learning_line(analysis: Analysis) -> str | None:
    """Return a sentence if variants are still learning, else None."""
    found = analysis.convergence
    names = found.still_learning
    if not names:
        return None
    falls = sorted(100 * found.trends[slug].fraction for slug in names)
    low, high = f"{falls[0]:.1f}", f"{falls[-1]:.1f}"
    of = f" of {len(names)} of {len(found.trends)} variants" if len(names) < len(found.trends) else ""
    if len(names) == 1 < len(found.trends):
        of = f" of {analysis.frames.by_slug[names[0]].title}"
    decay = ""
    if len(found.decaying) == len(found.schedules):
        decay = f", although the learning rate decays to zero ({', '.join(found.decaying)})"
    text = (
        f"Still learning: the validation loss{of} fell by {low if low == high else f'{low} to {high}'} % over the last "
        f"fifth of the steps{decay}"
    )
    if gap := found.smallest_gap:
        difference, steps = show(gap.difference, LOSS, signed=True), gap_steps(gap, found)
        if gap.contrast.detected:
            text += (
                f". The difference in validation loss of {gap_name(gap)}, {difference}, is what the baseline learns in "
                f"{steps} at this rate"
            )
        else:
            text += (
                f". No contrast is detected; the largest difference in validation loss, {difference} of "
                f"{gap_name(gap)}, is as much as the baseline learns in {steps} at this rate"
            )
    return text + "."


def convergence_fact(analysis: Analysis) -> str | None:
    """Return a sentence if it cannot be judged whether the runs trained far enough, else None."""
    found = analysis.convergence
    if found.trends and all(trend.verdict == NOT_JUDGED for trend in found.trends.values()):
        reasons = [trend.reason for trend in found.trends.values() if trend.reason != NO_LOSS]
        return f"Whether the runs trained far enough cannot be judged: {reasons[0]}." if reasons else None
    if found.decaying and not found.still_learning:
        return (
            f"The learning rate decays to zero ({', '.join(found.decaying)}), which hides what the runs have left to "
            "learn: their loss levels off in any case."
        )
    return None


def gap_name(gap: StepGap) -> str:
    """Return the two sides of a gap."""
    contrast = gap.contrast
    if contrast.kind == "factor":
        within = f" ({contrast.within})" if contrast.within else ""
        return f"{contrast.axis} {contrast.left} against {contrast.right}{within}"
    if contrast.kind == "variant":
        return contrast.name.replace(" − baseline", " against the baseline").replace(" − ", " against ")
    return contrast.name


def gap_steps(gap: StepGap, found: Convergence) -> str:
    """Return the steps of a gap with two significant digits, at most the trained steps."""
    if gap.steps > found.total_steps:
        return f"more than {found.total_steps:,} steps"
    if gap.steps < 0.5:
        return "less than a step"
    return f"about {float(f'{gap.steps:.2g}'):,.0f} steps"


def convergence_blocks(analysis: Analysis, listed: Sequence[str]) -> list[Block]:
    """Return the folded table of the fall of the listed variants, and the gaps of the contrasts in steps."""
    found = analysis.convergence
    trained = [slug for slug in listed if slug in found.trends]
    if not trained:
        return []
    columns = (
        Column("variant", align="left"),
        Column("seeds"),
        Column("fitted validation loss\nat 80 % of the steps"),
        Column("fall until\nthe end"),
        Column("standard error\nover seeds"),
        Column("verdict", align="left"),
    )
    table = DataTable(columns, tuple(_row(analysis.frames.by_slug[slug].title, found.trends[slug]) for slug in trained))
    blocks: list[Block] = [table]
    if found.gaps:
        gaps = (
            TableRow(
                (
                    TableCell(gap_name(gap)),
                    TableCell(show(gap.difference, LOSS, signed=True)),
                    TableCell(gap_steps(gap, found)),
                )
            )
            for gap in found.gaps
        )
        headings = (
            Column("contrast", align="left"),
            Column("difference in\nvalidation loss"),
            Column("in steps\nof the baseline"),
        )
        blocks.append(DataTable(headings, tuple(gaps)))
    notes = [
        "Still learning: over the last fifth of the steps the loss falls by more than 1 %, more than 0.01 nats and "
        "more than two standard errors over seeds. The fall is that of a line through the evaluations of this part."
    ]
    if found.gaps:
        notes.append("Steps: the difference divided by the fall of the baseline per step in this part.")
    if found.decaying:
        notes.append(
            f"The learning rate decays to zero ({', '.join(found.decaying)}). The loss then levels off whether or not "
            "the model could learn more; train a seed with twice the steps to see the difference."
        )
    summary = f"Trained far enough? {_summary(found)}"
    return [Details(summary, (*blocks, BulletList(tuple(notes))))]


def _summary(found: Convergence) -> str:
    counts = Counter(trend.verdict for trend in found.trends.values())
    verdicts: tuple[TrendVerdict, ...] = (STILL_LEARNING, LEVELLED_OFF, NOT_JUDGED)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict])


def _row(title: str, trend: LossTrend) -> TableRow:
    verdict = TableCell(f"{trend.verdict}: {trend.reason}" if trend.reason else trend.verdict)
    if math.isnan(trend.loss):
        return TableRow((TableCell(title), TableCell(str(trend.n)), blank(), blank(), blank(), verdict))
    return TableRow(
        (
            TableCell(title),
            TableCell(str(trend.n)),
            TableCell(show(trend.loss, LOSS)),
            TableCell(f"{show(trend.fall, LOSS)} ({show(100 * trend.fraction, LOSS, digits=-2)} %)"),
            TableCell(show(trend.error, LOSS)),
            verdict,
        )
    )


def convergence_record(analysis: Analysis) -> dict[str, Any]:
    """Return whether the runs trained far enough, for ``answer.json``."""
    found = analysis.convergence
    return {
        "still_learning": bool(found.still_learning),
        "decaying_schedules": list(found.decaying),
        "variants": {
            slug: {
                "verdict": trend.verdict,
                "reason": trend.reason,
                "seeds": trend.n,
                "loss": number(trend.loss),
                "fall": number(trend.fall),
                "standard_error": number(trend.error),
                "last_steps": number(trend.steps),
            }
            for slug, trend in found.trends.items()
        },
        "gaps": [
            {"contrast": gap.contrast.name, "loss_difference": gap.difference, "baseline_steps": gap.steps}
            for gap in found.gaps
        ],
    }
