"""Steps to target: a table per declared target, columns of ``results.csv``, and the entry of ``answer.json``."""

from __future__ import annotations

import math
from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.analysis.targets import Target, VariantTarget
from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, TableCell, TableRow
from headtohead.report.cells import blank
from headtohead.report.content import ReportContent
from headtohead.storage.metrics import readable, show, show_p
from headtohead.storage.progress import duration

NOTE = (
    "The step of the first evaluation that reaches the target. A run that never reaches it counts as infinite (∞), so "
    "the table has medians over seeds, and a sign test against the baseline instead of a t-test. The p-values are "
    "adjusted by Holm over the variants, and by the number of planned looks. Time is the training time of a stack "
    "without evaluations; compare it between stacks of equal size only."
)


def target_blocks(content: ReportContent) -> list[Block]:
    """Return the section with a table per target; empty without targets."""
    found = content.analysis.targets
    if not found:
        return []
    blocks: list[Block] = [Heading(2, "Steps to target", "targets", "Steps to target"), Paragraph(NOTE, "note")]
    for target in found:
        blocks += [Paragraph(f"Target: {_name(target)}."), _table(content, target)]
    return blocks


def target_columns(analysis: Analysis) -> dict[str, list[float]]:
    """Return the steps and seconds to each target in the order of the runs; NaN for runs without a result."""
    runs, columns = analysis.frames.runs, dict[str, list[float]]()
    keys = [(str(variant), int(seed)) for variant, seed in zip(runs["variant"], runs["seed"], strict=True)]
    for target in analysis.targets:
        found = target.variants
        columns[f"steps_to_target/{target.metric}"] = [found[slug].steps.get(seed, math.nan) for slug, seed in keys]
        columns[f"seconds_to_target/{target.metric}"] = [found[slug].seconds.get(seed, math.nan) for slug, seed in keys]
    return columns


def target_record(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the targets for ``answer.json``; infinite medians are the text ``inf``, as JSON has no infinity."""
    return [
        {
            "metric": target.metric,
            "target": "baseline" if target.value is None else target.value,
            "variants": {
                slug: {
                    "runs": len(found.steps),
                    "reached": found.reached,
                    "median_steps": _json(found.median_steps),
                    "median_seconds": _json(found.median_seconds),
                    "seeds_earlier": found.earlier,
                    "seeds_later": found.later,
                    "holm_p": _json(found.holm_p),
                    "verdict": found.verdict,
                    "reason": found.reason,
                }
                for slug, found in target.variants.items()
            },
        }
        for target in analysis.targets
    ]


def _name(target: Target) -> str:
    if target.value is None:
        return f"the baseline's final {readable(target.metric)} with the same seed"
    return f"{readable(target.metric)} {show(target.value, target.metric)}"


def _table(content: ReportContent, target: Target) -> DataTable:
    columns = (
        Column("variant", align="left"),
        Column("reached"),
        Column("median\nsteps"),
        Column("median\ntime"),
        Column("seeds earlier,\nlater"),
        Column("sign test\nHolm p"),
        Column("against the baseline", align="left"),
    )
    rows = (
        TableRow(
            (TableCell(content.title(slug, coloured=False)), *_cells(target.variants[slug])),
            emphasised=slug == content.analysis.frames.baseline,
        )
        for slug in content.listed
    )
    return DataTable(columns, tuple(rows))


def _cells(found: VariantTarget) -> tuple[TableCell, ...]:
    if not found.steps:
        return (blank(found.reason or "no run with a result"),) * 6
    compared = (
        (blank(found.reason or ""),) * 3
        if found.verdict is None
        else (TableCell(f"{found.earlier}, {found.later}"), TableCell(show_p(found.holm_p)), TableCell(found.verdict))
    )
    steps, seconds = found.median_steps, found.median_seconds
    return (
        TableCell(f"{found.reached} of {len(found.steps)}"),
        TableCell(f"{steps:,.0f}" if math.isfinite(steps) else "∞"),
        blank() if math.isnan(seconds) else TableCell(duration(seconds) if math.isfinite(seconds) else "∞"),
        *compared,
    )


def _json(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf"
