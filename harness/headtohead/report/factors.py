"""The section on factor effects: two values of an axis compared, averaged over the other axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast
from headtohead.report.blocks import Block, Column, DataTable, Heading, NamedFigure, Paragraph, TableCell, TableRow
from headtohead.report.cells import difference_cell, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent
from headtohead.storage import metrics

MOST_INTERACTIONS = 12
"""Maximum number of interactions in the table."""


def factor_blocks(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the section; empty without factor contrasts."""
    family = content.analysis.factors
    if not family.contrasts:
        return []
    unpadded = {contrast.name: contrast for contrast in _unpadded_contrasts(content)}
    columns = (
        Column("axis", align="left"),
        Column("value", align="left"),
        Column("against", align="left"),
        Column(f"difference in {content.metric}"),
        Column("without padding"),
        Column("range"),
        Column("settings"),
        *verdict_columns(family.tested, "contrasts"),
    )
    ordered = sorted(family.contrasts, key=lambda contrast: -abs(contrast.paired.mean) if contrast.paired else 0.0)
    rows = tuple(_row(contrast, unpadded.get(contrast.name)) for contrast in ordered)
    blocks: list[Block] = [
        Heading(2, "Axis by axis", "factors", "Axis by axis"),
        Paragraph(
            "Two values of an axis, averaged within each seed over the settings of the other axes, largest difference "
            "first. The range is the smallest and the largest difference among these settings. With each "
            "verdict: the interval at its Holm step, if that is not the 95 % interval, and the test of equivalence.",
            "note",
        ),
        DataTable(columns, rows),
    ]
    blocks += _interactions(content)
    if "interactions" in figures:
        caption = (
            "Means with 95 % intervals over the settings of the other axes that all points of a panel share. Parallel "
            "lines mean that the effect of an axis does not depend on the other axis."
        )
        blocks.append(NamedFigure("interactions", "interactions of axes", caption))
    return blocks


def _interactions(content: ReportContent) -> list[Block]:
    """Return the table of the interactions; empty without any."""
    family = content.analysis.interactions
    if not family.contrasts:
        return []
    columns = (
        Column("interaction", align="left"),
        Column(f"difference of differences in {content.metric}"),
        Column("settings"),
        *verdict_columns(family.tested, "interactions"),
    )
    ordered = sorted(family.contrasts, key=lambda contrast: contrast.paired.p if contrast.paired else math.inf)
    rows = tuple(
        TableRow(
            (
                TableCell(contrast.name),
                difference_cell(contrast),
                TableCell(str(len(contrast.pairs) // 2)),
                *verdict_cells(contrast),
            )
        )
        for contrast in ordered[:MOST_INTERACTIONS]
    )
    omitted = len(ordered) - len(rows)
    more = f" The {omitted} interactions with the largest p are omitted." if omitted else ""
    note = (
        "Whether the effect of an axis depends on another axis: the difference between two values of an axis at one "
        f"value of the other axis, minus that at the other value, paired by seed.{more}"
    )
    return [Heading(3, "Interactions"), Paragraph(note, "note"), DataTable(columns, rows)]


def _row(contrast: Contrast, unpadded: Contrast | None) -> TableRow:
    spread = [metrics.show(end, contrast.metric, signed=True) for end in contrast.spread or ()]
    return TableRow(
        (
            TableCell(str(contrast.axis)),
            TableCell(f"{contrast.left} ({contrast.within})" if contrast.within else contrast.left),
            TableCell(contrast.right),
            difference_cell(contrast),
            difference_cell(unpadded),
            TableCell(" to ".join(spread) or "–"),
            TableCell(str(len(contrast.pairs))),
            *verdict_cells(contrast),
        )
    )


def _unpadded_contrasts(content: ReportContent) -> tuple[Contrast, ...]:
    """Return the factor contrasts on the scores without padding, if these were evaluated."""
    analysis = content.analysis
    name = metrics.unpadded(analysis.metric)
    if name not in analysis.frames.runs:
        return ()
    return analysis.in_metric(name).factors.contrasts
