"""The section on runs: those without a result, excluded combinations and reused runs."""

from __future__ import annotations

import math
from typing import Any

from headtohead.report.blocks import Block, BulletList, Column, DataTable, Heading, Link, Paragraph, TableCell, TableRow
from headtohead.report.content import MOST_ROWS, ReportContent
from headtohead.storage import states
from headtohead.storage.metrics import counted

MOST_REUSED = 50


def run_blocks(content: ReportContent) -> list[Block]:
    """Return the number of runs and the lists of runs without a result, exclusions and reused runs."""
    frames = content.analysis.frames
    return [
        Heading(2, "Runs, exclusions and failures", "runs", "Runs"),
        Paragraph(
            (
                f"{counted(len(frames.runs), 'run')}: {counted(len(frames.by_slug), 'variant')}, "
                f"{counted(len(frames.seeds), 'seed')}. The numbers of every run are in ",
                Link("results.csv", "results.csv"),
                ".",
            )
        ),
        *_not_done(content),
        *_excluded(content),
        *_reused(content),
        *_notes(content),
    ]


def _not_done(content: ReportContent) -> list[Block]:
    runs = content.analysis.frames.runs
    not_done = runs[runs["state"] != states.DONE]
    if not_done.empty:
        return []
    rows = tuple(
        TableRow(
            (
                TableCell(str(run["title"])),
                TableCell(str(run["seed"])),
                TableCell(str(run["state"])),
                TableCell(str(run["reason"] or "–")),
                TableCell(_progress(run["step"], run["steps"])),
            )
        )
        for _, run in not_done[:MOST_ROWS].iterrows()
    )
    state_columns = Column("state", align="left"), Column("reason", align="left")
    return [
        Heading(3, "Runs without a result"),
        DataTable((Column("variant", align="left"), Column("seed"), *state_columns, Column("step")), rows),
        *_more(len(not_done) - MOST_ROWS),
    ]


def _excluded(content: ReportContent) -> list[Block]:
    sources = {"exclude": "by the experiment file", "incompatible": "incompatible"}
    rows = tuple(
        TableRow((TableCell(excluded.title), TableCell(excluded.reason), TableCell(sources[excluded.source])))
        for excluded in content.record.excluded
    )
    columns = tuple(Column(heading, align="left") for heading in ("combination", "reason", "excluded"))
    return [Heading(3, "Excluded"), DataTable(columns, rows)] if rows else []


def _reused(content: ReportContent) -> list[Block]:
    runs = content.analysis.frames.runs
    reused = runs[runs["reused_from"].notna()]
    if reused.empty:
        return []
    lines = tuple(
        f"{run['title']}, seed {run['seed']}: trained in {run['reused_from']}"
        for _, run in reused[:MOST_REUSED].iterrows()
    )
    return [Heading(3, "Reused runs"), BulletList(lines), *_more(len(reused) - MOST_REUSED)]


def _notes(content: ReportContent) -> list[Block]:
    notes = content.record.notes
    return [Heading(3, "Notes of the plan"), BulletList(notes)] if notes else []


def _more(count: int) -> list[Block]:
    return [Paragraph(f"{count} more in results.csv.", "note")] if count > 0 else []


def _progress(step: Any, steps: Any) -> str:
    if any(value is None or math.isnan(value) for value in (step, steps)):
        return "–"
    return f"{int(step)} of {int(steps)}"
