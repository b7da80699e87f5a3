"""Notebook output of plans, results, runs and attention maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from headtohead.analysis.results import RunsTable
from headtohead.analysis.study import Analysis
from headtohead.escaping import visible
from headtohead.execution.loaded import LoadedRun
from headtohead.figures.heat_map import HeatMap, heat_map_figure
from headtohead.figures.style import to_svg
from headtohead.planning.overview import COLUMNS, overview
from headtohead.planning.plan import Plan
from headtohead.plugins.families import COMPONENTS
from headtohead.report.content import Report
from headtohead.report.render import fragment
from headtohead.report.section import Section, table
from headtohead.report.variants import pitfall_section, variant_section
from headtohead.report.writing import ReportPaths
from headtohead.storage.attention_maps import map_tokens
from headtohead.storage.frames import load_frames
from headtohead.storage.metrics import show
from headtohead.storage.run import RunRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead.training.maps import SentenceMaps

HEADINGS = {
    "cross": "cross: where the decoder attends to in the source",
    "encoder": "encoder: where the encoder attends to in the source",
    "decoder": "decoder: where the decoder attends to in its own output",
}
MAX_CELLS = 6_000
"""Maximum number of drawn weights, because a notebook file contains every figure."""

MAX_ROWS = 30
"""Maximum number of rows of runs; longer tables omit rows in the middle."""

SHOWN_COLUMNS = ("variant", "seed", "state", "reason")
SIZES = ("d_model", "heads", "encoder_layers", "decoder_layers", "d_ff")
INPUTS = {"translation": "its own translation", "reference": "the reference"}


def plan_html(plan: Plan) -> str:
    """Return the output of ``h2h plan`` as HTML."""
    summary = overview(plan)
    rows = table(dict(zip(COLUMNS, row, strict=True)) for row in summary.rows)
    sections = [
        Section(heading, lines=list(lines)) for heading, lines in summary.sections.items() if lines
    ]
    return fragment(
        Section("", lines=summary.lines, frame=rows), *sections, heading=summary.heading
    )


def runs_html(runs: RunsTable) -> str:
    """Return the answer, the table of variants and the notes of a study, then the main columns of its runs, as HTML."""
    report = Report(Analysis(runs.frames))
    columns = [
        name for name in runs.columns if name in SHOWN_COLUMNS or str(name).startswith("test/")
    ]
    rows = pd.DataFrame(runs)[columns].reset_index(drop=True).dropna(axis="columns", how="all")
    note = f"{len(runs)} runs; .columns lists {len(runs.columns) - len(columns)} more columns: axes, sizes, costs"
    text = visible(str(rows.to_html(max_rows=MAX_ROWS, border=0, na_rep="")))
    study = fragment(report.differences, *_study_sections(report), heading=report.answer)
    return study + text + fragment(Section("", note))


def loaded_html(run: LoadedRun) -> str:
    """Return the title, settings, test scores and pitfalls of a loaded run as HTML."""
    directory = RunDirectory(run.path)
    results = directory.results
    return run_html(directory.record, results.metrics if results else {})


def result_html(folder: Path, states: Mapping[str, int], paths: ReportPaths | None) -> str:
    """Return a study's answer, figures and table of variants, or its progress while it is incomplete, as HTML.

    Args:
        folder: The folder of the experiment's runs.
        states: Number of runs by state.
        paths: The files of the report if the study is complete, else None.
    """
    if paths is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return fragment(Section("", f"incomplete: {counts or 'no run'} in {folder}"))
    return paths._repr_html_() + fragment(*_study_sections(Report(Analysis(load_frames(folder)))))


def _study_sections(report: Report) -> list[Section]:
    """Return the sections of a study that a notebook shows: the variants, their pitfalls and the notes."""
    notes = Section("Notes", report.banner or "", lines=[remark.text for remark in report.remarks])
    found = [replace(variant_section(report), text="", parts=()), pitfall_section(report), notes]
    return [section for section in found if section is not None]


def run_html(record: RunRecord, metrics: Mapping[str, float | None]) -> str:
    """Return a run's title, settings, test scores and pitfalls as HTML.

    Args:
        record: The run's record.
        metrics: Final metrics by name; empty if the run was not evaluated.
    """
    settings = {"data": str(record.config.data.dataset)}
    for family in COMPONENTS:
        names = {
            role: entry.name for role, entry in getattr(record.config, family).by_role().items()
        }
        by_role = [f"{name} ({role})" for role, name in names.items()]
        settings[family] = ", ".join(
            by_role if len(set(names.values())) > 1 else set(names.values())
        )
    settings |= {name: str(getattr(record.config.model, name)) for name in SIZES}
    tests = {
        name.removeprefix("test/"): show(value, name)
        for name, value in metrics.items()
        if name.startswith("test/")
    }
    scores = table({"on the test set": name, "score": text} for name, text in tests.items())
    return fragment(
        Section(
            "", frame=table({"setting": name, "value": value} for name, value in settings.items())
        ),
        Section("", "" if tests else "no scores: the run was not evaluated", frame=scores),
        Section(
            "",
            lines=[f"pitfall {pitfall.name}: {pitfall.consequence}" for pitfall in record.pitfalls],
        ),
        heading=f"{record.title}, seed {record.seed}",
    )


def maps_html(maps: SentenceMaps) -> str:
    """Return the maps of a sentence as HTML: the heads of every layer side by side, with token labels."""
    record = maps.record
    signs = "Negative weights are orange, −1 in full colour. " * bool(record.get("signed"))
    texts = [
        f"Each row is a query token, each column a key token; full colour is a weight of 1. {signs}The decoder's input "
        f"is {INPUTS.get(record['target_from'], 'the given target')}.",
        *(f"Maps of the {role}: {note}." for role, note in record.get("map_notes", {}).items()),
    ]
    remaining, figures, sections = MAX_CELLS, dict[str, str](), [Section("", " ".join(texts))]
    for role, title in HEADINGS.items():
        weights = maps.weights.get(role)
        if weights is None or not weights.size:
            continue
        layers, heads, queries, keys = weights.shape
        fitting = max(remaining // (heads * queries * keys), 0 if remaining < MAX_CELLS else 1)
        drawn = range(max(layers - fitting, 0), layers)
        remaining -= len(drawn) * heads * queries * keys
        if drawn:
            labels = map_tokens(record, role)
            heat_maps = [
                HeatMap(weights[layer, head], *labels, f"layer {layer}, head {head}{entropy}")
                for layer in drawn
                for head, found in enumerate(record["heads"][role][layer])
                for entropy in [
                    "" if found["entropy"] is None else f", entropy {found['entropy']:.2f}"
                ]
            ]
            figures[role] = to_svg(heat_map_figure(heat_maps, across=heads), salt=role)
        omitted = f'{drawn.start} earlier layers are not drawn; .weights["{role}"] contains them.'
        sections.append(Section(title, omitted if drawn.start else "", figure=role))
    return fragment(*sections, figures=figures, heading=record["source"])
