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
from headtohead.planning.overview import overview
from headtohead.planning.plan import Plan
from headtohead.plugins.families import COMPONENTS
from headtohead.report.content import Report
from headtohead.report.render import fragment
from headtohead.report.section import Section, table
from headtohead.report.variants import pitfall_section, score_section
from headtohead.report.writing import ReportPaths
from headtohead.schema.run_config import RunConfig
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
NOT_EVALUATED = "no scores: the run was not evaluated"
TEST = "test/"
INPUTS = {"translation": "its own translation", "reference": "the reference"}


def plan_html(plan: Plan) -> str:
    """Return the output of ``h2h plan`` as HTML."""
    summary = overview(plan)
    rows = table(dict(zip(summary.columns, row, strict=True)) for row in summary.rows)
    sections = [Section("", lines=summary.lines, frame=rows)]
    for heading, lines in summary.sections.items():
        if lines:
            sections.append(Section(heading, lines=list(lines)))
    return fragment(*sections, heading=summary.heading)


NOT_SHOWN = "{runs} runs; .columns lists {columns} more columns: settings, sizes, costs"


def runs_html(runs: RunsTable) -> str:
    """Return the answer and the table of variants of a study, then the main columns of its runs, as HTML.

    The main columns are ``SHOWN_COLUMNS`` and test scores, without empty columns. Of more than ``MAX_ROWS`` runs, rows
    in the middle are left out. The answer ranks only variants with all seeds.

    Raises:
        HeadToHeadError: If no dataset declares a metric of the study, or if a file of the study is damaged, such as the
            stored values per example of a run.
    """
    report = Report(Analysis(runs.frames))
    columns = []
    for name in runs.columns:
        if name in SHOWN_COLUMNS or str(name).startswith(TEST):
            columns.append(name)
    rows = pd.DataFrame(runs)[columns].reset_index(drop=True)
    rows = rows.dropna(axis="columns", how="all")
    num_hidden = len(runs.columns) - len(columns)
    note = NOT_SHOWN.format(runs=len(runs), columns=num_hidden)
    study = fragment(report.differences, *_study_sections(report), heading=report.answer)
    text = visible(str(rows.to_html(max_rows=MAX_ROWS, border=0, na_rep="")))
    return study + text + fragment(Section("", note))


def loaded_html(run: LoadedRun) -> str:
    """Return title, settings, test scores and pitfalls of a loaded run as HTML; without results, no scores.

    Raises:
        HeadToHeadError: If the records of the run are missing or damaged.
    """
    directory = RunDirectory(run.path)
    results = directory.results
    metrics = results.metrics if results else {}
    return run_html(directory.record, metrics)


def result_html(folder: Path, states: Mapping[str, int], paths: ReportPaths | None) -> str:
    """Return a study's answer, figures and table of variants, or its progress while it is incomplete, as HTML.

    Args:
        folder: The folder of the experiment's runs.
        states: Number of runs by state.
        paths: The files of the report if the study is complete, else None.

    Raises:
        HeadToHeadError: If the study is complete, and a file in ``folder`` is damaged or no dataset declares a metric.
    """
    if paths is None:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        progress = counts or "no run"
        return fragment(Section("", f"incomplete: {progress} in {folder}"))
    report = Report(Analysis(load_frames(folder)))
    return paths._repr_html_() + fragment(*_study_sections(report))


def _study_sections(report: Report) -> list[Section]:
    """Return the sections of a study that a notebook shows: the variants, their pitfalls and the notes."""
    sections = [replace(score_section(report), text="", parts=())]
    pitfalls = pitfall_section(report)
    if pitfalls is not None:
        sections.append(pitfalls)
    remarks = [remark.text for remark in report.remarks]
    sections.append(Section("Notes", report.banner or "", lines=remarks))
    return sections


def run_html(record: RunRecord, metrics: Mapping[str, float | None]) -> str:
    """Return a run's title, settings, test scores and pitfalls as HTML; other metrics are left out.

    Args:
        record: The run's record.
        metrics: Final metrics by name; without test scores, a sentence says that the run was not evaluated.
    """
    scores = []
    for name, value in metrics.items():
        if name.startswith(TEST):
            row = {"on the test set": name.removeprefix(TEST), "score": show(value, name)}
            scores.append(row)
    settings = _settings(record.config)
    rows = [{"setting": name, "value": value} for name, value in settings.items()]
    pitfalls = []
    for pitfall in record.pitfalls:
        pitfalls.append(f"pitfall {pitfall.name}: {pitfall.consequence}")
    note = "" if scores else NOT_EVALUATED
    return fragment(
        Section("", frame=table(rows)),
        Section("", note, frame=table(scores)),
        Section("", lines=pitfalls),
        heading=f"{record.title}, seed {record.seed}",
    )


def _settings(config: RunConfig) -> dict[str, str]:
    """Return the main settings by name: dataset, the entries of each component family, and the sizes of the model.

    Entries have their names only, so that entries with other options look the same. Those of layers that alternate are
    joined by "/". The entries of a family are listed with their roles if their names differ between roles.
    """
    settings = {"data": str(config.data.dataset)}
    for family in COMPONENTS:
        name_of = {}
        for role, chosen in getattr(config, family).by_role().items():
            name_of[role] = "/".join(entry.name for entry in chosen.pattern)
        names = set(name_of.values())
        if len(names) > 1:
            names_by_role = [f"{name} ({role})" for role, name in name_of.items()]
            settings[family] = ", ".join(names_by_role)
        else:
            settings[family] = ", ".join(names)
    for name in SIZES:
        settings[name] = str(getattr(config.model, name))
    return settings


MAPS = (
    "Each row is a query token, each column a key token; full colour is a weight of 1. {negative}The decoder's input "
    "is {target}."
)
NEGATIVE = "Negative weights are orange, −1 in full colour. "
ROLE_NOTE = "Maps of the {role}: {note}."
FIGURE = "Attention maps of the {role}"
OMITTED = '{layers} earlier layers are not drawn; .weights["{role}"] contains them.'


def maps_html(maps: SentenceMaps) -> str:
    """Return the maps of a sentence as HTML: the heads of every layer side by side, with token labels.

    Roles are in the order of ``HEADINGS``; a role without maps has no section. At most ``MAX_CELLS`` weights are drawn,
    role after role: the first layers of a role are left out, or all of them, with a sentence on their number. The last
    layer of the first role with maps is always drawn, even if it alone has more weights.
    """
    record = maps.record
    negative = NEGATIVE if record.get("signed") else ""
    target = INPUTS.get(record["target_from"], "the given target")
    texts = [MAPS.format(negative=negative, target=target)]
    for role, note in record.get("map_notes", {}).items():
        texts.append(ROLE_NOTE.format(role=role, note=note))
    sections = [Section("", " ".join(texts))]
    figures: dict[str, str] = {}
    remaining = MAX_CELLS
    for role, title in HEADINGS.items():
        weights = maps.weights.get(role)
        if weights is None or not weights.size:
            continue
        num_layers, heads, queries, keys = weights.shape
        cells_of_layer = heads * queries * keys
        num_drawn = min(remaining // cells_of_layer, num_layers)
        if not figures:  # the first role has a layer, however large that is
            num_drawn = max(num_drawn, 1)
        remaining = max(remaining - num_drawn * cells_of_layer, 0)
        first_drawn = num_layers - num_drawn
        if num_drawn:
            figures[role] = _role_figure(maps, role, first_drawn)
        omitted = ""
        if first_drawn:
            omitted = OMITTED.format(layers=first_drawn, role=role)
        sections.append(Section(title, omitted, figure=role))
    return fragment(*sections, figures=figures, heading=record["source"])


def _role_figure(maps: SentenceMaps, role: str, first: int) -> str:
    """Return the figure of the heads of a role as SVG, a row per layer from the layer ``first`` on.

    The titles have the entropy of a head in nats, unless it has none.

    Raises:
        KeyError: If there are no maps of ``role``.
    """
    record, weights = maps.record, maps.weights[role]
    query_labels, key_labels = map_tokens(record, role)
    heat_maps = []
    for layer in range(first, len(weights)):
        for head, statistics in enumerate(record["heads"][role][layer]):
            title = f"layer {layer}, head {head}"
            if statistics["entropy"] is not None:
                title += f", entropy {statistics['entropy']:.2f}"
            heat_maps.append(HeatMap(weights[layer, head], query_labels, key_labels, title))
    figure = heat_map_figure(heat_maps, across=weights.shape[1])
    return to_svg(figure, role, title=FIGURE.format(role=role))
