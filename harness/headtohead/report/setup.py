"""How an experiment was run: a line for the first screen, the configuration, the tuning, the runs, the commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.config.labels import text as value_text
from headtohead.plugins.families import COMPONENTS
from headtohead.report.content import MAX_ROWS, Report
from headtohead.report.data import READING, corpus_text, layers_text
from headtohead.report.figures.lines import MAX_LINES
from headtohead.report.section import Section, table
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import TrainConfig
from headtohead.statistics.paired_tests import SIGN_FLIP_SEEDS, few_seeds
from headtohead.storage import states
from headtohead.storage.experiment import TrialRecord, TuningRecord, examples_of
from headtohead.storage.metrics import counted, show, show_count
from headtohead.storage.record import leaves

MAX_VALUES = 4
"""Maximum number of values that are listed; with more, the smallest and the largest number or a count."""

CHOSEN_SHADE = 40
LEARNING_RATE = "train.lr"
PAIRED = "Every contrast is paired by seed and tested by a paired t-test. Intervals are t-intervals over seeds."
MODERATED = (
    "Every contrast is paired by seed. Its variance is moderated: a weighted mean of the variance of its own "
    "differences and of the residual variance of all variants. Intervals are t-intervals over seeds. The paired t p "
    "uses the contrast's own variance alone, as a check; no verdict rests on it."
)
FAMILIES = (
    "variants against the baseline",
    "factor contrasts",
    "interactions",
    "contrasts that the file declares",
    "added changes",
    "taken changes",
)
DIRECTION = (
    "Its interval has the level of the contrast's Holm step and excludes zero if and only if a direction is detected. "
    "The sign-flip p, of a permutation of the signs of the differences, is not adjusted. The effect is the mean "
    "difference divided by its standard deviation, Hedges-corrected."
)
SIZE = (
    "Size: two one-sided t-tests (TOST) within the margin at 5 %, Holm-adjusted within the family, with an interval of "
    "their level; beyond, if this interval is entirely outside the margin."
)
NO_MARGIN = "Without a margin there is no verdict on the size. An undetected difference does not show equality."
LOOKS = (
    "Looks: every p-value is first adjusted for all planned looks, by the joint distribution of their t-tests with a "
    "constant level (Pocock), then by Holm. Intervals have the level of the look."
)


def setup_line(analysis: Analysis) -> str:
    """Return data, sizes, steps, learning rate and seeds as a sentence."""
    data, variants, values = (
        analysis.frames.record.data,
        list(analysis.frames.by_slug.values()),
        _values(analysis),
    )
    counts = data.get("counts", {})
    pairs = [
        f"{counts[part]:,} {name}"
        for part, name in (("train", "training"), ("test", "test"))
        if counts.get(part)
    ]
    examples = examples_of(data)
    batch, heads = values["train.batch_size"], values["model.heads"]
    tokens = (
        f"up to {values['train.batch_tokens']} tokens" if batch == "null" else f"{batch} {examples}"
    )
    first, reading, rest = _text_of(
        [layers_text(found.config.model, data) for found in variants]
    ).partition(READING)
    layers = first + reading + rest.replace(READING, "")
    totals = [found.counts.total for found in variants]
    parameters = " to ".join(
        dict.fromkeys(show_count(total) for total in (min(totals), max(totals)))
    )
    trained = analysis.frames.trained_steps or [found.steps for found in variants]
    steps = " to ".join(dict.fromkeys(f"{count:,}" for count in (min(trained), max(trained))))
    parts = [
        corpus_text(data) + f", {' and '.join(pairs)} {examples}" * bool(pairs),
        f"width {values['model.d_model']}, {heads} head{'s' * (heads != '1')}, {layers}, "
        f"feed-forward {_text_of([found.d_ff for found in variants])}, {parameters} parameters",
        f"{steps} steps of {tokens}",
        f"learning rate {learning_rate(analysis)}, schedule {values['train.schedule.name']}",
        counted(len(analysis.frames.seeds), "seed"),
    ]
    return f"Set-up: {'; '.join(parts)}."


def learning_rate(analysis: Analysis) -> str:
    """Return the learning rate and how it was chosen."""
    rates, tuning = _values(analysis)[LEARNING_RATE], analysis.frames.record.tuning
    if tuning is not None and tuning.variants and LEARNING_RATE in tuning.fields:
        tried = {
            trial.values[LEARNING_RATE]: None
            for tuned in tuning.variants.values()
            for trial in tuned.tried
        }
        edges = sum(bool(variant.at_the_edge) for variant in tuning.variants.values())
        note = (
            f" and at the edge of this sweep for {edges} of {len(tuning.variants)} variants"
            * bool(edges)
        )
        sweep = _text_of(sorted(tried), len(tried)) + _length(tuning)
        return f"{rates}, tuned for each variant on {tuning.metric} over {sweep}{note}"
    if LEARNING_RATE in analysis.frames.record.axes:
        return f"{rates}, an axis of the experiment"
    is_default = rates == _text_of([TrainConfig.model_fields["lr"].default])
    return f"{rates}, {'the default' if is_default else 'set in the experiment file'}"


def setup_section(report: Report) -> Section:
    """Return the complete configuration; values that differ between variants are all listed."""
    sections: dict[str, list[str]] = {}
    for path, value in _values(report.analysis).items():
        section, _, name = path.partition(".")
        sections.setdefault(section, []).append(f"{name} {value}")
    items = {
        "seeds": ", ".join(map(str, report.analysis.frames.seeds)),
        "match": report.record.match,
    }
    items |= {section: ", ".join(texts) for section, texts in sections.items()}
    entries = [f"{entry.name}: {entry.summary.replace('`', '')}" for entry in report.record.entries]
    rows = ({"setting": name, "value": value} for name, value in items.items())
    return Section("Set-up", frame=table(rows), lines=entries)


def tuning_section(report: Report) -> Section | None:
    """Return the score of every variant at every setting of the sweep, or None without a complete sweep."""
    record, found = report.record.tuning, report.analysis.sweep
    caption = (
        "Mean over seeds, one standard deviation on both sides. A star is the best setting of the variant."
        + f" The first {MAX_LINES} variants."
        * (found is not None and found.rows["variant"].nunique() > MAX_LINES)
    )
    lines = [found.sentence] if found else []
    if record is None or not record.variants:
        return (
            Section(f"Sweep of {found.field}", figure="sweep", caption=caption, lines=lines)
            if found
            else None
        )
    tuned = {
        slug: found
        for slug, found in record.variants.items()
        if slug in report.analysis.frames.by_slug
    }
    settings: list[Mapping[str, Any]] = []
    for variant in tuned.values():
        settings += [trial.values for trial in variant.tried if trial.values not in settings]
    with suppress(TypeError):  # settings that are not all numbers stay in the order of the file
        settings.sort(key=lambda values: list(values.values()))
    rows, shade = [], []
    for slug, variant in tuned.items():
        row = {record.metric: report.title(slug)}
        tried = {tuple(trial.values.values()): trial for trial in variant.tried}
        for values in settings:
            name = ", ".join(
                f"{path.rpartition('.')[2]} {value_text(value)}" for path, value in values.items()
            )
            row[name] = _loss(tried.get(tuple(values.values())), record.metric)
        rows.append(row)
        shade.append([0, *(CHOSEN_SHADE * (values == variant.chosen) for values in settings)])
    edges = ", ".join(report.title(slug) for slug, variant in tuned.items() if variant.at_the_edge)
    return Section(
        "Tuning",
        f"Every variant was trained with several settings on seeds {', '.join(map(str, record.seeds))}"
        f"{_length(record)}, which the comparison does not use (experiment {record.experiment}). Dark: the setting "
        f"with the lowest mean {record.metric}, which the comparison uses.",
        figure="sweep",
        caption=caption,
        frame=table(rows),
        shade=shade,
        lines=lines
        + [f"At the edge of the sweep, so that a wider sweep may change the comparison: {edges}."]
        * bool(edges),
    )


def _loss(trial: TrialRecord | None, metric: str) -> str:
    if trial is None or trial.mean is None:
        return "" if trial is None else "diverged"
    return show(trial.mean, metric) + ("" if trial.sd is None else f"\nsd {show(trial.sd, metric)}")


def runs_section(report: Report) -> Section:
    """Return the runs without a result, the excluded combinations, the reused runs and the notes of the plan."""
    frames = report.analysis.frames
    lost = frames.runs[frames.runs["state"] != states.DONE]
    reused = frames.runs[frames.runs["reused_from"].notna()]
    sources = {"exclude": "by the experiment file", "incompatible": "incompatible"}
    tables = {
        "Runs without a result": [
            {
                "variant": str(run["title"]),
                "seed": str(run["seed"]),
                "state": str(run["state"]),
                "reason": str(run["reason"] or "–"),
                "step": f"{run['step']:.0f} of {run['steps']:.0f}"
                if run[["step", "steps"]].notna().all()
                else "–",
            }
            for _, run in lost[:MAX_ROWS].iterrows()
        ],
        "Excluded combinations": [
            {"combination": found.title, "reason": found.reason, "excluded": sources[found.source]}
            for found in report.record.excluded
        ],
        "Reused runs": [
            {
                "variant": str(run["title"]),
                "seed": str(run["seed"]),
                "trained in": str(run["reused_from"]),
            }
            for _, run in reused[:MAX_ROWS].iterrows()
        ],
    }
    return Section(
        "Runs",
        f"{counted(len(frames.runs), 'run')}: {counted(len(frames.by_slug), 'variant')}, "
        f"{counted(len(frames.seeds), 'seed')}. {len(lost)} without a result, {len(report.record.excluded)} "
        f"combinations excluded, {len(reused)} reused.",
        lines=report.record.notes,
        parts=[Section(title, frame=table(rows)) for title, rows in tables.items() if rows],
    )


def statistics_section(report: Report) -> Section:
    """Return the statistical methods and the limits that follow from the number of seeds."""
    frames, seeds = report.analysis.frames, len(report.analysis.frames.seeds)
    tested = [
        name for name, found in zip(FAMILIES, report.analysis.families, strict=True) if found.tested
    ]
    method = [
        "Intervals are t-intervals over seeds."
        if seeds > 1
        else "With a single seed there is no p-value."
    ]
    if tested:
        direction = f"Direction: a t-test at 5 % after Holm's correction within a family: {listed(tested)}. {DIRECTION}"
        method = [
            MODERATED if len(set(map(frames.trained, frames.by_slug))) > 2 else PAIRED,
            direction,
        ]
        method += [SIZE if report.record.margins else NO_MARGIN]
    looks = [LOOKS] if report.analysis.looks else []
    families = len(tested) + (report.analysis.two_way is not None)
    error = (
        f"Error rate of the whole report: {families} families of tests, each with a wrong direction in at most 5 % "
        f"of studies without differences; any wrong direction of the report in at most {5 * families} %."
    )
    lines = [
        *method,
        *looks,
        *([error] if families > 1 else []),
        *([f"{few_seeds(seeds)}."] if tested and seeds < SIGN_FLIP_SEEDS else []),
    ]
    return Section("Statistics", lines=lines)


def reproduction_section(report: Report) -> Section:
    """Return the commands, the experiment file, and the versions at planning."""
    record, partial = report.record, " --allow-partial" if report.analysis.allow_partial else ""
    # An experiment that was run with --name is found by its name only.
    file = record.file if record.file and Path(record.file).stem == record.name else None
    versions = {name: str(value) for name, value in record.versions.items() if value is not None}
    # Of the platform, only the parts that a result can depend on.
    if found := re.match(
        r"([A-Za-z]+)-.*?(x86_64|aarch64|arm64|AMD64)", versions.get("platform", "")
    ):
        versions["platform"] = " ".join(found.groups())
    return Section(
        "Reproduction",
        code=f"{record.command}\nh2h report {file or record.name}{partial}",
        frame=table(
            {"software": name.replace("_", " "), "version": value}
            for name, value in versions.items()
        ),
        parts=[Section(record.file or "experiment file", code=record.text)] if record.text else [],
    )


def _values(analysis: Analysis) -> dict[str, str]:
    """Return the distinct values of each field of the configuration over all variants, the baseline's first."""
    by_slug = analysis.frames.by_slug
    fields: dict[str, list[Any]] = {}
    for variant in [by_slug[analysis.frames.baseline], *by_slug.values()]:
        config, absent = variant.config, {*ROLES} - {*variant.config.roles}
        omitted = {
            name: getattr(config, name).model_dump() for name in COMPONENTS
        }  # at their default
        unused = {"train.batch_tokens"} if config.train.batch_size else set()
        architecture = {"model.architecture": config.model.architecture}
        for path, value in (dict(leaves(config.model_dump() | omitted)) | architecture).items():
            if path not in unused and not absent & {*re.split(r"[._]", path)}:
                fields.setdefault(path, []).append(value)
    return {path: _text_of(values) for path, values in fields.items()}


def _text_of(values: list[Any], most: int = MAX_VALUES) -> str:
    """Return the distinct values as text: a list, or if there are many a range or their number."""
    distinct = list(dict.fromkeys(_text(value) for value in values))
    if len(distinct) <= most:
        return " / ".join(distinct)
    if all(isinstance(value, int | float) for value in values):
        return f"{_text(min(values))} to {_text(max(values))}"
    return f"({len(distinct)} values)"


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value)) or "none"
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name  # the data hash identifies the content, wherever the file is
    return f"{value:g}" if isinstance(value, float) else value_text(value)


def _length(tuning: TuningRecord) -> str:
    return "" if tuning.epochs is None else f" with train.epochs {value_text(tuning.epochs)}"
