"""The section on tuning: the settings that every variant was tried with before the comparison."""

from __future__ import annotations

from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.report.blocks import Block, BulletList, Column, Heading, Note, Span, Table, TableCell, TableRow
from headtohead.storage.metrics import show

CHOSEN_SHADE = 40
"""Percent of colour behind the setting that a variant was trained with."""


def tuning_blocks(analysis: Analysis) -> list[Block]:
    """Return the section, nothing for an experiment without tuning: settings as columns, variants as rows."""
    experiment = analysis.frames.experiment
    record = experiment.get("tuning")
    if not record or not record["variants"]:
        return []
    metric, tuned = str(record["metric"]), record["variants"]
    titles = {variant["slug"]: variant["title"] for variant in experiment["variants"]}
    first = next(iter(tuned.values()))
    settings = (
        ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in trial["values"].items())
        for trial in first["tried"]
    )
    rows = (
        TableRow((TableCell(titles[slug]), *(_trial(trial, result["chosen"], metric) for trial in result["tried"])))
        for slug, result in tuned.items()
        if slug in titles
    )
    seeds = " and ".join(map(str, record["seeds"]))
    sentences = [
        f"Every variant was tried with the same {len(first['tried'])} settings on seeds {seeds}, "
        f"which the comparison does not use (experiment {record['experiment']}); it has the one of "
        f"lowest mean {metric}."
    ]
    if edges := [titles[slug] for slug, result in tuned.items() if result["at_the_edge"]]:
        every = "every variant" if len(edges) == len(tuned) else ", ".join(edges)
        sentences.append(
            f"The best value stands at the edge of what was tried for {every}: a wider sweep may change the comparison."
        )
    return [
        Heading(2, "Settings that were tried", "tuning", "Settings"),
        Table((Column(metric, align="left"), *map(Column, settings)), tuple(rows), grid=True),
        BulletList(tuple(sentences)),
    ]


def _trial(tried: dict[str, Any], chosen: dict[str, Any], metric: str) -> TableCell:
    mean = "diverged" if tried["mean"] is None else show(tried["mean"], metric)
    notes = () if tried["sd"] is None else (Note(f"sd {show(tried['sd'], metric)}"),)
    if tried["values"] == chosen:
        return TableCell(Span(mean, "strong"), notes, tooltip="chosen", shade=CHOSEN_SHADE)
    return TableCell(mean, notes)
