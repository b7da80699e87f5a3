"""Results as cell output: the answer, a line per variant, and below it what they come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from headtohead.analysis.study import analyse
from headtohead.report import ReportPaths
from headtohead.report.content import Content
from headtohead.report.notebook.tables import paragraph, section, table
from headtohead.report.rows import VariantRow
from headtohead.storage.frames import Frames, load_frames

COLUMNS = ("variant", "seeds", "score", "95 % interval", "against the baseline", "parameters")
NUMBERS = (1, 2, 3, 5)
ROWS = ("variant", "seed", "state", "reason")
MOST_ROWS = 30
"""Rows that are shown; the middle of a longer table is left out."""


def summary_html(frames: Frames) -> str:
    """Return the answer, every variant's score and what a reader should know beside them."""
    content = Content(analyse(frames))
    return paragraph(content.answer, strong=True) + table_html(content)


def table_html(content: Content) -> str:
    """Return a line per variant, best first, and what a reader should know beside the scores."""
    banner = paragraph(content.banner) if content.banner else ""
    columns = [content.metric if name == "score" else name for name in COLUMNS]
    rows = [_row(one) for one in content.variants]
    faults = (f"{one.name} ({one.variants}): {one.says}" for one in content.faults)
    beside = section("faults", faults) + section("beside the scores", content.facts)
    return banner + table(columns, rows, NUMBERS) + beside


def rows_html(runs: pd.DataFrame) -> str:
    """Return the rows with what a reader looks for in them, and what else there is."""
    shown = [name for name in runs.columns if name in ROWS or str(name).startswith("test/")]
    rows = pd.DataFrame(runs)[shown].reset_index(drop=True).dropna(axis="columns", how="all")
    left_out = len(runs.columns) - len(shown)
    note = f"{len(runs)} runs; .columns names {left_out} further columns: axes, sizes, costs"
    return str(rows.to_html(max_rows=MOST_ROWS, border=0, na_rep="")) + paragraph(note)


def result_html(folder: Path, states: Mapping[str, int], report: ReportPaths | None) -> str:
    """Return what a study came to: its answer and figures, or how far it got.

    Args:
        folder: The experiment's folder of runs.
        states: Number of runs by state.
        report: Where its report was written, if it is complete.
    """
    if report is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return paragraph(f"not complete: {counts or 'no run'} in {folder}")
    return report._repr_html_() + table_html(Content(analyse(load_frames(folder))))


def _row(one: VariantRow) -> tuple[str, ...]:
    verdict = one.verdict if not one.difference.mean else f"{one.difference.mean}: {one.verdict}"
    return (
        one.title,
        str(one.n),
        one.score.mean,
        one.score.interval or one.score.reason,
        "the baseline" if one.baseline else one.note or verdict,
        one.costs.parameters,
    )
