"""Results as cell output: the answer, a line per variant, and the facts beside the scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from headtohead.analysis.study import analyse
from headtohead.report import ReportPaths
from headtohead.report.blocks import Block, Column, Paragraph, Span, Table, TableCell, TableRow
from headtohead.report.cells import difference_cell
from headtohead.report.content import ReportContent
from headtohead.report.html import html_blocks
from headtohead.report.notebook.tables import titled_list
from headtohead.report.variants import parameters, pitfall_table, primary_score, variant_note
from headtohead.storage.frames import Frames, load_frames

SHOWN_COLUMNS = ("variant", "seed", "state", "reason")
MOST_ROWS = 30
"""Rows that are shown; the middle of a longer table is left out."""


def summary_html(frames: Frames) -> str:
    """Return the answer, every variant's score and the facts beside them."""
    content = ReportContent(analyse(frames))
    return html_blocks([Paragraph(Span(content.answer, "strong")), *_score_blocks(content)], inline=True)


def rows_html(runs: pd.DataFrame) -> str:
    """Return the main columns of the runs, and how many further columns there are."""
    shown = [name for name in runs.columns if name in SHOWN_COLUMNS or str(name).startswith("test/")]
    rows = pd.DataFrame(runs)[shown].reset_index(drop=True).dropna(axis="columns", how="all")
    left_out = len(runs.columns) - len(shown)
    note = f"{len(runs)} runs; .columns names {left_out} further columns: axes, sizes, costs"
    return str(rows.to_html(max_rows=MOST_ROWS, border=0, na_rep="")) + html_blocks([Paragraph(note)], inline=True)


def result_html(folder: Path, states: Mapping[str, int], report: ReportPaths | None) -> str:
    """Return a study's answer and figures, or its progress while it is incomplete.

    Args:
        folder: The experiment's folder of runs.
        states: Number of runs by state.
        report: Where its report was written, if it is complete.
    """
    if report is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return html_blocks([Paragraph(f"not complete: {counts or 'no run'} in {folder}")], inline=True)
    content = ReportContent(analyse(load_frames(folder)))
    return report._repr_html_() + html_blocks(_score_blocks(content), inline=True)


def _score_blocks(content: ReportContent) -> list[Block]:
    """Return a line per variant, best first, then pitfalls and facts."""
    columns = (
        Column("variant", align="left"),
        Column("seeds"),
        Column(content.metric),
        Column("95 % interval"),
        Column("against the baseline", align="left"),
        Column("parameters"),
    )
    blocks: list[Block] = [Paragraph(content.banner, "banner")] if content.banner else []
    blocks.append(Table(columns, tuple(_row(content, slug) for slug in content.listed)))
    if pitfalls := pitfall_table(content):
        blocks += [Paragraph(Span("pitfalls", "strong")), pitfalls]
    return [*blocks, *titled_list("beside the scores", content.facts)]


def _row(content: ReportContent, slug: str) -> TableRow:
    score = primary_score(content, slug)
    interval = score.notes[0].text if score.notes else score.tooltip
    contrast = next((each for each in content.analysis.variants.contrasts if each.left == slug), None)
    verdict = contrast.words if contrast and contrast.verdict else "–"
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
