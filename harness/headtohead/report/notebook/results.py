"""Notebook output of results: the answer, a row per variant, and facts that qualify the answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from headtohead.analysis.study import Analysis
from headtohead.escaping import visible
from headtohead.report.blocks import Block, Column, DataTable, Paragraph, Span, TableCell, TableRow
from headtohead.report.cells import difference_cell
from headtohead.report.content import ReportContent
from headtohead.report.html import html_blocks
from headtohead.report.notebook.tables import titled_list
from headtohead.report.variants import parameters, pitfall_table, primary_score, variant_note
from headtohead.report.writing import ReportPaths
from headtohead.storage.frames import Frames, load_frames

SHOWN_COLUMNS = ("variant", "seed", "state", "reason")
MOST_ROWS = 30
"""Maximum number of rows; longer tables omit rows in the middle."""


def summary_html(frames: Frames) -> str:
    """Return the answer, the scores of all variants, pitfalls and facts as HTML."""
    content = ReportContent(Analysis(frames))
    return html_blocks([Paragraph(Span(content.answer, "strong")), *_score_blocks(content)], inline=True)


def rows_html(runs: pd.DataFrame) -> str:
    """Return the main columns of the runs, and the number of other columns, as HTML."""
    columns = [name for name in runs.columns if name in SHOWN_COLUMNS or str(name).startswith("test/")]
    rows = pd.DataFrame(runs)[columns].reset_index(drop=True).dropna(axis="columns", how="all")
    num_omitted = len(runs.columns) - len(columns)
    note = f"{len(runs)} runs; .columns lists {num_omitted} more columns: axes, sizes, costs"
    table = visible(str(rows.to_html(max_rows=MOST_ROWS, border=0, na_rep="")))
    return table + html_blocks([Paragraph(note)], inline=True)


def result_html(folder: Path, states: Mapping[str, int], report: ReportPaths | None) -> str:
    """Return a study's answer and figures, or its progress while it is incomplete, as HTML.

    Args:
        folder: The folder of the experiment's runs.
        states: Number of runs by state.
        report: The files of the report if the study is complete, else None.
    """
    if report is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return html_blocks([Paragraph(f"incomplete: {counts or 'no run'} in {folder}")], inline=True)
    content = ReportContent(Analysis(load_frames(folder)))
    return report._repr_html_() + html_blocks(_score_blocks(content), inline=True)


def _score_blocks(content: ReportContent) -> list[Block]:
    """Return a row per variant, best first, then pitfalls and facts."""
    columns = (
        Column("variant", align="left"),
        Column("seeds"),
        Column(content.metric),
        Column("95 % interval"),
        Column("against the baseline", align="left"),
        Column("parameters"),
    )
    blocks: list[Block] = [Paragraph(content.banner, "banner")] if content.banner else []
    blocks.append(DataTable(columns, tuple(_row(content, slug) for slug in content.listed)))
    if pitfalls := pitfall_table(content):
        blocks += [Paragraph(Span("pitfalls", "strong")), pitfalls]
    return [*blocks, *titled_list("facts", content.facts)]


def _row(content: ReportContent, slug: str) -> TableRow:
    score = primary_score(content, slug)
    interval = score.notes[0].text if score.notes else score.tooltip
    contrast = next((contrast for contrast in content.analysis.variants.contrasts if contrast.left == slug), None)
    verdict = contrast.verdict_text if contrast else "–"
    if slug == content.analysis.frames.baseline:
        against = "the baseline"
    else:
        against = variant_note(content, slug) or f"{difference_cell(contrast).text}: {verdict}"
    return TableRow(
        (
            TableCell(content.title(slug, coloured=False)),
            TableCell(str(content.analysis.summaries[slug].n)),
            TableCell(score.text),
            TableCell(interval),
            TableCell(against),
            TableCell(parameters(content, slug)),
        )
    )
