"""Notebook output of a plan: remaining runs, finished runs and excluded combinations."""

from __future__ import annotations

from headtohead.planning.overview import COLUMNS, NUMBERS, overview
from headtohead.planning.plan import Plan
from headtohead.report.blocks import Block, Paragraph, Span
from headtohead.report.html import html_blocks
from headtohead.report.notebook.tables import text_table, titled_list


def plan_html(plan: Plan) -> str:
    """Return the output of ``h2h plan`` as HTML."""
    summary = overview(plan)
    blocks: list[Block] = [
        Paragraph(Span(summary.heading, "strong")),
        *map(Paragraph, summary.lines),
        text_table(COLUMNS, summary.rows, right=NUMBERS),
    ]
    for heading, lines in summary.sections.items():
        blocks += titled_list(heading, lines)
    return html_blocks(blocks, inline=True)
