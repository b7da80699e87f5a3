"""The section on tuning: the loss of every variant at every setting of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed, text
from headtohead.report.blocks import Block, BulletList, CellNote, Column, DataTable, Heading, Span, TableCell, TableRow
from headtohead.storage.experiment import TrialRecord, TuningRecord
from headtohead.storage.metrics import show

CHOSEN_SHADE = 40
"""Background colour of the chosen setting in percent."""

MOST_NAMED = 5


def variants_at_the_edge(record: TuningRecord) -> str:
    """Return how many variants have their best value at the edge of the sweep; empty for none."""
    edges = sum(bool(variant.at_the_edge) for variant in record.variants.values())
    if edges == len(record.variants) > 1:
        return "every variant"
    return f"{edges} of {len(record.variants)} variants" if edges else ""


def length_of(record: TuningRecord) -> str:
    """Return the epochs of the sweep's runs as a phrase, or an empty text if they are those of the experiment."""
    return "" if record.epochs is None else f" with train.epochs {text(record.epochs)}"


def tuning_blocks(analysis: Analysis) -> list[Block]:
    """Return the section with settings as columns and variants as rows; empty without a complete sweep."""
    record = analysis.frames.record.tuning
    if record is None or not record.variants:
        return []
    metric, tuned = record.metric, record.variants
    titles = {slug: variant.title for slug, variant in analysis.frames.by_slug.items()}
    first = next(iter(tuned.values()))
    settings = (
        ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in trial.values.items()) for trial in first.tried
    )
    rows = (
        TableRow((TableCell(titles[slug]), *(_trial(trial, variant.chosen, metric) for trial in variant.tried)))
        for slug, variant in tuned.items()
        if slug in titles
    )
    seeds = listed([*map(str, record.seeds)])
    sentences = [
        f"Every variant was trained with the same {len(first.tried)} settings on seeds {seeds}{length_of(record)}, "
        f"which the comparison does not use (experiment {record.experiment}). Each variant has the setting "
        f"with its lowest mean {metric}."
    ]
    if edges := [titles[slug] for slug, variant in tuned.items() if variant.at_the_edge]:
        named = ", ".join(edges) if len(edges) <= MOST_NAMED else variants_at_the_edge(record)
        sentences.append(
            f"The best value is at the edge of the sweep for {named}: a wider sweep may change the comparison."
        )
    return [
        Heading(2, "Tuning", "tuning", "Tuning"),
        DataTable((Column(metric, align="left"), *map(Column, settings)), tuple(rows), grid=True),
        BulletList(tuple(sentences)),
    ]


def _trial(trial: TrialRecord, chosen: Mapping[str, Any], metric: str) -> TableCell:
    mean = "diverged" if trial.mean is None else show(trial.mean, metric)
    notes = () if trial.sd is None else (CellNote(f"sd {show(trial.sd, metric)}"),)
    if trial.values == chosen:
        return TableCell(Span(mean, "strong"), notes, tooltip="chosen", shade=CHOSEN_SHADE)
    return TableCell(mean, notes)
