"""The section on padding: scores in padded batches beside scores of one sentence at a time."""

from __future__ import annotations

from headtohead.analysis.study import ceiling_verdicts
from headtohead.report.blocks import Block, Column, Heading, Paragraph, Span, Table, TableCell, TableRow
from headtohead.report.cells import paired_cell
from headtohead.report.content import ReportContent
from headtohead.statistics.paired_tests import paired
from headtohead.storage import metrics


def unpadded_blocks(content: ReportContent) -> list[Block]:
    """Return the section, nothing where no run was scored one sentence at a time."""
    frames = content.analysis.frames
    name = metrics.alone(content.analysis.metric)
    if name not in frames.runs:
        return []
    ceilings = ceiling_verdicts(content.analysis)
    slugs = [slug for slug in content.listed if frames.scores(slug, name)]
    if not slugs:
        return []
    note = (
        "The same translations scored twice: in padded batches, and one by one where there is nothing to pad. A model "
        "that never sees pads scores the same in both."
    )
    if content.analysis.ceiling is not None:
        note += (
            f" An encoder blind to word order cannot pass {content.analysis.ceiling:.3f} on this test set; judged on "
            "the score without padding."
        )
    headings = ("batched", "one at a time", "batched − alone", "test loss, batched", "test loss, alone")
    columns = (Column("variant", align="left"), *map(Column, headings), Column("ceiling", align="left"))
    rows = tuple(_row(content, slug, name, ceilings.get(slug, "")) for slug in slugs)
    return [
        Heading(2, "Batched and one sentence at a time", "alone", "Batched and alone"),
        Paragraph(note, "note"),
        Table(columns, rows),
    ]


def _row(content: ReportContent, slug: str, name: str, ceiling: str) -> TableRow:
    frames, metric = content.analysis.frames, content.analysis.metric
    alone, batched = frames.scores(slug, name), frames.scores(slug, metric)
    seeds = sorted(alone.keys() & batched.keys())
    difference = paired([batched[seed] for seed in seeds], [alone[seed] for seed in seeds])
    return TableRow(
        (
            TableCell(content.title(slug)),
            content.score(slug, metric),
            content.score(slug, name),
            paired_cell(difference, metric),
            content.score(slug, "test/loss"),
            content.score(slug, "test/loss_unpadded"),
            TableCell(Span(ceiling, "alarm") if "suspect" in ceiling else ceiling),
        )
    )
