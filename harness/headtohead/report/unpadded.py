"""The section on padding: scores in padded batches and scores without padding."""

from __future__ import annotations

from headtohead.config.labels import listed
from headtohead.report.blocks import Block, Column, DataTable, Heading, Paragraph, Span, TableCell, TableRow
from headtohead.report.cells import paired_cell
from headtohead.report.content import ReportContent
from headtohead.statistics.paired_tests import paired
from headtohead.storage import metrics


def unpadded_blocks(content: ReportContent) -> list[Block]:
    """Return the section; empty if no run was evaluated without padding."""
    frames = content.analysis.frames
    name = metrics.unpadded(content.analysis.metric)
    if name not in frames.runs:
        return []
    verdicts = content.analysis.upper_bound_verdicts
    slugs = [slug for slug in content.listed if frames.scores(slug, name)]
    if not slugs:
        return []
    note = "The test sentences evaluated twice: in padded batches, and one sentence at a time, without padding."
    equal = [slug for slug in slugs if frames.by_slug[slug].padding_hidden]
    if equal:
        names = "all variants" if len(equal) == len(slugs) else listed([frames.by_slug[slug].title for slug in equal])
        note += f" Equal by construction and evaluated once, since the masks hide padding: {names}."
    if content.analysis.upper_bound is not None:
        note += (
            f" An order-invariant encoder cannot exceed {content.analysis.upper_bound:.3f} on this test set without "
            "padding."
        )
    headings = ("padded", "unpadded", "padded − unpadded", "test loss, padded", "test loss, unpadded")
    columns = (Column("variant", align="left"), *map(Column, headings), Column("upper bound", align="left"))
    rows = tuple(_row(content, slug, name, verdicts.get(slug, "")) for slug in slugs)
    return [
        Heading(2, "With and without padding", "unpadded", "Padding"),
        Paragraph(note, "note"),
        DataTable(columns, rows),
    ]


def _row(content: ReportContent, slug: str, name: str, verdict: str) -> TableRow:
    frames, metric = content.analysis.frames, content.analysis.metric
    unpadded, padded = frames.scores(slug, name), frames.scores(slug, metric)
    seeds = sorted(unpadded.keys() & padded.keys())
    difference = paired([padded[seed] for seed in seeds], [unpadded[seed] for seed in seeds])
    return TableRow(
        (
            TableCell(content.title(slug)),
            content.score(slug, metric),
            content.score(slug, name),
            paired_cell(difference, metric),
            content.score(slug, "test/loss"),
            content.score(slug, "test/loss_unpadded"),
            TableCell(Span(verdict, "alarm") if "suspect" in verdict else verdict),
        )
    )
