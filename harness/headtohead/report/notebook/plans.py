"""A plan as cell output: what would run, what is done, what is refused and why."""

from __future__ import annotations

from headtohead.planning.overview import COLUMNS, NUMBERS, overview
from headtohead.planning.plan import Plan
from headtohead.report.notebook.tables import paragraph, section, table


def plan_html(plan: Plan) -> str:
    """Return what ``h2h plan`` prints, as HTML."""
    told = overview(plan)
    return "".join(
        [
            paragraph(told.heading, strong=True),
            *(paragraph(line) for line in told.lines),
            table(COLUMNS, told.rows, right=NUMBERS),
            *(section(heading, lines) for heading, lines in told.sections.items()),
        ]
    )
