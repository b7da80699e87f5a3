"""The section on factor effects: one value of an axis against another, over the settings of the rest."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.analysis.contrasts import Contrast, factor_family
from headtohead.report.blocks import Block, Column, Heading, NamedFigure, Paragraph, Table, TableCell, TableRow
from headtohead.report.cells import difference_cell, verdict_cells, verdict_columns
from headtohead.report.content import ReportContent
from headtohead.storage import metrics


def factor_blocks(content: ReportContent, figures: Sequence[str]) -> list[Block]:
    """Return the section, nothing for an experiment without factor contrasts."""
    family = content.analysis.factors
    if not family.contrasts:
        return []
    unpadded = {contrast.name: contrast for contrast in _unpadded_contrasts(content)}
    columns = (
        Column("axis", align="left"),
        Column("value", align="left"),
        Column("against", align="left"),
        Column(f"difference in {content.metric}"),
        Column("one sentence at a time"),
        Column("range"),
        Column("settings"),
        *verdict_columns(family.tested, "contrasts"),
    )
    rows = tuple(_row(contrast, unpadded.get(contrast.name)) for contrast in family.contrasts)
    blocks: list[Block] = [
        Heading(2, "Axis by axis", "factors", "Axis by axis"),
        Paragraph(
            "One value of an axis against another, averaged within each seed over the settings of the rest. The range "
            "shows the smallest and largest difference among those settings.",
            "note",
        ),
        Table(columns, rows),
    ]
    if "interactions" in figures:
        caption = (
            "Means with 95 % intervals, over the settings of the other axes that all points of a panel have. Parallel "
            "lines: the effect of one axis does not depend on the other."
        )
        blocks.append(NamedFigure("interactions", "interactions of axes", caption))
    return blocks


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
    """Return the same contrasts on the scores of sentences translated one at a time, where there are any."""
    analysis = content.analysis
    name = metrics.alone(analysis.metric)
    if name not in analysis.frames.runs:
        return ()
    return factor_family(analysis.frames, name, allow_partial=analysis.allow_partial).contrasts
