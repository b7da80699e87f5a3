"""The section on runs: those without a result, excluded combinations and reused runs."""

from __future__ import annotations

import math
from typing import Any

from headtohead.report.blocks import Block, BulletList, Column, Heading, Link, Paragraph, Table, TableCell, TableRow
from headtohead.report.content import MOST_ROWS, ReportContent
from headtohead.storage import metrics

MOST_REUSED = 50


def run_blocks(content: ReportContent) -> list[Block]:
    """Return how many runs there are, and which of them are not ordinary."""
    frames = content.analysis.frames
    return [
        Heading(2, "Runs, exclusions and failures", "runs", "Runs"),
        Paragraph(
            (
                f"{len(frames.runs)} runs: {len(frames.variants)} variants, {len(frames.seeds)} seeds. Every run's "
                "numbers are in ",
                Link("results.csv", "results.csv"),
                ".",
            )
        ),
        *_unfinished(content),
        *_excluded(content),
        *_reused(content),
        *_notes(content),
    ]


def _unfinished(content: ReportContent) -> list[Block]:
    runs = content.analysis.frames.runs
    decoding_state = runs[runs["state"] != "DONE"]
    if decoding_state.empty:
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
        for _, run in decoding_state[:MOST_ROWS].iterrows()
    )
    left = Column("state", align="left"), Column("reason", align="left")
    return [
        Heading(3, "Runs without a result"),
        Table((Column("variant", align="left"), Column("seed"), *left, Column("step")), rows),
        *_more(len(decoding_state) - MOST_ROWS),
    ]


def _excluded(content: ReportContent) -> list[Block]:
    excluded = content.experiment.get("excluded", [])
    sources = {"exclude": "by the experiment file", "undefined": "undefined"}
    rows = tuple(
        TableRow(
            (
                TableCell(row.get("title") or " · ".join(map(metrics.label, row["axes"].values()))),
                TableCell(str(row["reason"])),
                TableCell(sources.get(str(row.get("source")), str(row.get("source") or "–"))),
            )
        )
        for row in excluded
    )
    columns = tuple(Column(heading, align="left") for heading in ("combination", "reason", "left out"))
    return [Heading(3, "Excluded"), Table(columns, rows)] if rows else []


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
    notes = tuple(map(str, content.experiment.get("notes") or ()))
    return [Heading(3, "Notes of the plan"), BulletList(notes)] if notes else []


def _more(count: int) -> list[Block]:
    return [Paragraph(f"{count} more in results.csv.", "note")] if count > 0 else []


def _progress(step: Any, steps: Any) -> str:
    known = [value for value in (step, steps) if value is not None and not math.isnan(value)]
    return " of ".join(f"{int(value)}" for value in known) if len(known) == 2 else "–"
