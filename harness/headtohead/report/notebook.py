"""Notebook output of plans, results, runs and attention maps.

`register` sets ``_repr_html_`` on classes of lower packages, so that these do not import this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from headtohead.analysis.results import RunsTable
    from headtohead.execution.loaded import LoadedRun
    from headtohead.planning.plan import Plan
    from headtohead.report.content import Report
    from headtohead.report.section import Section
    from headtohead.report.writing import ReportPaths
    from headtohead.storage.run import RunRecord
    from headtohead.training.maps import SentenceMaps

HEADINGS = {
    "cross": "cross: where the decoder attends to in the source",
    "encoder": "encoder: where the encoder attends to in the source",
    "decoder": "decoder: where the decoder attends to in its own output",
}
MOST_CELLS = 6_000
"""Maximum number of drawn weights, because a notebook file contains every figure."""

MOST_ROWS = 30
"""Maximum number of rows of runs; longer tables omit rows in the middle."""

SHOWN_COLUMNS = ("variant", "seed", "state", "reason")
SIZES = ("d_model", "heads", "encoder_layers", "decoder_layers", "d_ff")


def register(*classes: type) -> None:
    """Set ``_repr_html_`` on ``Plan``, ``RunsTable``, ``LoadedRun`` or ``SentenceMaps``."""
    for cls in classes:
        type.__setattr__(cls, "_repr_html_", _OUTPUT[cls.__name__])


def plan_html(plan: Plan) -> str:
    """Return the output of ``h2h plan`` as HTML."""
    from headtohead.planning.overview import COLUMNS, overview
    from headtohead.report.render import fragment
    from headtohead.report.section import Section, table

    summary = overview(plan)
    rows = table(dict(zip(COLUMNS, row, strict=True)) for row in summary.rows)
    sections = [Section(heading, lines=list(lines)) for heading, lines in summary.sections.items() if lines]
    return fragment(Section("", lines=summary.lines, frame=rows), *sections, heading=summary.heading)


def results_html(runs: RunsTable) -> str:
    """Return the answer, the table of variants and the notes of a study, then the main columns of its runs."""
    import pandas as pd

    from headtohead.analysis.study import Analysis
    from headtohead.escaping import visible
    from headtohead.report.content import Report
    from headtohead.report.render import fragment
    from headtohead.report.section import Section

    report = Report(Analysis(runs.frames))
    columns = [name for name in runs.columns if name in SHOWN_COLUMNS or str(name).startswith("test/")]
    rows = pd.DataFrame(runs)[columns].reset_index(drop=True).dropna(axis="columns", how="all")
    note = f"{len(runs)} runs; .columns lists {len(runs.columns) - len(columns)} more columns: axes, sizes, costs"
    table = visible(str(rows.to_html(max_rows=MOST_ROWS, border=0, na_rep="")))
    return fragment(*study_sections(report), heading=report.answer) + table + fragment(Section("", note))


def result_html(folder: Path, states: Mapping[str, int], paths: ReportPaths | None) -> str:
    """Return a study's answer, figures and table of variants, or its progress while it is incomplete, as HTML.

    Args:
        folder: The folder of the experiment's runs.
        states: Number of runs by state.
        paths: The files of the report if the study is complete, else None.
    """
    from headtohead.report.render import fragment
    from headtohead.report.section import Section

    if paths is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return fragment(Section("", f"incomplete: {counts or 'no run'} in {folder}"))
    from headtohead.analysis.study import Analysis
    from headtohead.report.content import Report
    from headtohead.storage.frames import load_frames

    report = Report(Analysis(load_frames(folder)))
    return str(paths._repr_html_()) + fragment(*study_sections(report))


def study_sections(report: Report) -> list[Section]:
    """Return the sections of a study that a notebook shows: the variants, their pitfalls and the notes."""
    from dataclasses import replace

    from headtohead.report.section import Section
    from headtohead.report.variants import pitfall_section, variant_section

    notes = Section("Notes", report.banner or "", lines=[remark.text for remark in report.remarks])
    found = [replace(variant_section(report), text="", parts=()), pitfall_section(report), notes]
    return [section for section in found if section is not None]


def run_html(record: RunRecord, metrics: Mapping[str, float | None]) -> str:
    """Return a run's title, settings, test scores and pitfalls as HTML.

    Args:
        record: The run's record.
        metrics: Final metrics by name; empty if the run was not evaluated.
    """
    from headtohead.config.builder import FAMILIES
    from headtohead.report.render import fragment
    from headtohead.report.section import Section, table
    from headtohead.storage.metrics import show

    def by_role(entries: Mapping[str, Mapping[str, Any]]) -> str:
        names = {role: str(entry["name"]) for role, entry in entries.items()}
        distinct = set(names.values())
        return distinct.pop() if len(distinct) == 1 else ", ".join(f"{name} ({role})" for role, name in names.items())

    settings = {"data": str(record.config["data"]["dataset"])}
    settings |= {family: by_role(record.config[family]) for family in FAMILIES}
    settings |= {name: str(record.config["model"][name]) for name in SIZES}
    scores = [
        {"on the test set": name.removeprefix("test/"), "score": show(value, name)}
        for name, value in metrics.items()
        if name.startswith("test/")
    ]
    return fragment(
        Section("", frame=table({"setting": name, "value": value} for name, value in settings.items())),
        Section("", "" if scores else "no scores: the run was not evaluated", frame=table(scores)),
        Section("", lines=[f"pitfall {pitfall.name}: {pitfall.consequence}" for pitfall in record.pitfalls]),
        heading=f"{record.title}, seed {record.seed}",
    )


def maps_html(record: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> str:
    """Return the maps of a sentence as HTML: the heads of every layer side by side, with token labels.

    Args:
        record: Tokens of both sides, and entropy and distance by role, layer and head.
        weights: Weights ``[layer, head, query, key]`` by role.
    """
    from headtohead.figures.heat_map import HeatMap, heat_map_figure
    from headtohead.figures.style import to_svg
    from headtohead.report.render import fragment
    from headtohead.report.section import Section
    from headtohead.storage.attention_maps import map_tokens

    inputs = {"translation": "its own translation", "reference": "the reference"}
    notes = [f"Maps of the {role}: {note}." for role, note in record.get("map_notes", {}).items()]
    signs = "Negative weights are orange, −1 in full colour. " if record.get("signed") else ""
    caption = (
        f"Each row is a query token, each column a key token; full colour is a weight of 1. {signs}The decoder's input "
        f"is {inputs.get(record['target_from'], 'the given target')}."
    )
    remaining, figures = MOST_CELLS, {}
    sections = [Section("", " ".join([caption, *notes]))]
    for role, title in HEADINGS.items():
        maps = weights.get(role)
        if maps is None or not maps.size:
            continue
        layers, heads, queries, keys = maps.shape
        fitting = max(remaining // (heads * queries * keys), 0 if remaining < MOST_CELLS else 1)
        drawn = range(max(layers - fitting, 0), layers)
        remaining -= len(drawn) * heads * queries * keys
        if drawn:
            rows, columns = map_tokens(record, role)
            heat_maps = []
            for layer in drawn:
                for head, found in enumerate(record["heads"][role][layer]):
                    suffix = "" if found["entropy"] is None else f", entropy {found['entropy']:.2f}"
                    heat_maps.append(HeatMap(maps[layer, head], rows, columns, f"layer {layer}, head {head}{suffix}"))
            figures[role] = to_svg(heat_map_figure(heat_maps, across=heads), salt=role)
        omitted = layers - len(drawn)
        text = f'{omitted} earlier layers are not drawn; .weights["{role}"] contains them.' if omitted else ""
        sections.append(Section(title, text, figure=role))
    return fragment(*sections, figures=figures, heading=record["source"])


def _loaded_html(run: LoadedRun) -> str:
    from headtohead.storage.run_directory import RunDirectory

    directory = RunDirectory(run.path)
    results = directory.results
    return run_html(directory.record, results.metrics if results else {})


def _maps_html(maps: SentenceMaps) -> str:
    return maps_html(maps.record, maps.weights)


_OUTPUT = {"Plan": plan_html, "RunsTable": results_html, "LoadedRun": _loaded_html, "SentenceMaps": _maps_html}
