"""How an experiment was run: a line for the first screen, the configuration, the tuning, the runs, the commands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed, separable
from headtohead.config.labels import text as value_text
from headtohead.plugins.families import COMPONENTS
from headtohead.report.content import MAX_ROWS, Report
from headtohead.report.data import corpus_text, layers_text, reading_of
from headtohead.report.figures.lines import MAX_LINES
from headtohead.report.section import Section, table
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import ModelConfig, TrainConfig
from headtohead.storage import states
from headtohead.storage.contrasts import FAMILIES_IN_WORDS
from headtohead.storage.experiment import VariantRecord, examples_of
from headtohead.storage.metrics import counted, show, show_count, show_p
from headtohead.storage.record import leaves
from headtohead.storage.tuning import TrialRecord, TuningRecord
from headtohead_judge.paired_tests import SIGN_FLIP_SEEDS, few_seeds

MAX_VALUES = 4
"""Maximum number of values that are listed; with more, the smallest and the largest number or a count."""

CHOSEN_SHADE = 40
LEARNING_RATE = "train.lr"

SETUP = "Set-up: {parts}."
SIZE = "width {width}, {layers}, {parameters} parameters"
MODEL = "width {width}, {heads}, {layers}, feed-forward {feed_forward}, {parameters} parameters"
STEPS = "{steps} steps of {batch}"
RATE = "learning rate {rate}, schedule {schedule}"


def setup_line(analysis: Analysis) -> str:
    """Return data, sizes, steps, learning rate and seeds in a line; values that differ are listed or a range.

    The steps are those that were trained, or of the plan if no run has started (`_step_range`). `complete_setup` adds
    languages, heads, feed-forward width, batch, schedule, and the sweep.
    """
    data = analysis.frames.record.data
    variants = list(analysis.frames.by_slug.values())
    values = _values_by_field(analysis)
    rate = values[LEARNING_RATE]
    if _tuned_rates(analysis):
        rate = TUNED_IN_SHORT.format(rate=rate)
    parts = [
        _with_examples(_corpus_without_languages(data), data),
        SIZE.format(
            width=values["model.d_model"],
            layers=_with_unit(_layer_numbers(variants), "layer"),
            parameters=_parameter_range(variants),
        ),
        f"{_step_range(analysis)} steps",
        f"learning rate {rate}",
        counted(len(analysis.frames.seeds), "seed"),
    ]
    return SETUP.format(parts="; ".join(parts))


def complete_setup(analysis: Analysis) -> str:
    """Return the line of `setup_line`, with languages, heads, feed-forward width, batch and schedule, too.

    It also states how the learning rates were chosen (`learning_rate`).
    """
    data = analysis.frames.record.data
    variants = list(analysis.frames.by_slug.values())
    values = _values_by_field(analysis)
    heads = values["model.heads"]
    model = MODEL.format(
        width=values["model.d_model"],
        heads=_with_unit(heads, "head"),
        layers=_layers(variants, data),
        feed_forward=_distinct_values([variant.d_ff for variant in variants]),
        parameters=_parameter_range(variants),
    )
    parts = [_with_examples(corpus_text(data), data)]
    parts.append(model)
    parts.append(STEPS.format(steps=_step_range(analysis), batch=_batches(variants, data)))
    parts.append(RATE.format(rate=learning_rate(analysis), schedule=values["train.schedule.name"]))
    parts.append(counted(len(analysis.frames.seeds), "seed"))
    return SETUP.format(parts="; ".join(parts))


def _with_unit(numbers: str, unit: str) -> str:
    """Return a list of numbers with their unit, which is singular after a single 1."""
    return f"1 {unit}" if numbers == "1" else f"{numbers} {unit}s"


def _corpus_without_languages(data: Mapping[str, Any]) -> str:
    """Return the name of the dataset without the languages of pairs; of a text, also the name of the text."""
    languages = [language for language in data.get("languages") or () if language != "none"]
    return corpus_text(data) if len(languages) == 1 else str(data["dataset"])


def _parameter_range(variants: Sequence[VariantRecord]) -> str:
    """Return the number of parameters of the variants, or its range."""
    totals = [variant.counts.total for variant in variants]
    return _range(show_count(min(totals)), show_count(max(totals)))


def _step_range(analysis: Analysis) -> str:
    """Return the number of trained steps, or its range; that of the plan if no run has started."""
    planned = [variant.steps for variant in analysis.frames.by_slug.values()]
    steps = analysis.frames.trained_steps or planned
    return _range(f"{min(steps):,}", f"{max(steps):,}")


def _layer_numbers(variants: Sequence[VariantRecord]) -> str:
    """Return the distinct numbers of layers, such as ``2 encoder + 2 decoder, 5 / 2 decoder-only``.

    Where all models are decoder-only, such as ``5 / 2``.
    """
    with_encoder = []
    decoder_only = []
    for variant in variants:
        model = variant.config.model
        if model.architecture == "encoder-decoder":
            with_encoder.append(f"{model.encoder_layers} encoder + {model.decoder_layers} decoder")
        else:
            decoder_only.append(str(model.decoder_layers))
    if not decoder_only:
        return _distinct_values(with_encoder)
    if not with_encoder:
        return _distinct_values(decoder_only)
    return f"{_distinct_values(with_encoder)}, {_distinct_values(decoder_only)} decoder-only"


def _with_examples(name: str, data: Mapping[str, Any]) -> str:
    """Return the name of a dataset, and how many examples training and test have."""
    counts = data.get("counts", {})
    sizes = []
    if counts.get("train"):
        sizes.append(f"{counts['train']:,} training")
    if counts.get("test"):
        sizes.append(f"{counts['test']:,} test")
    if not sizes:
        return name
    return f"{name}, {' and '.join(sizes)} {examples_of(data)}"


def _batches(variants: Sequence[VariantRecord], data: Mapping[str, Any]) -> str:
    """Return the sizes of the variants' batches: in examples, then in tokens where ``train.batch_size`` is null."""
    examples = []
    tokens = []
    for variant in variants:
        train = variant.config.train
        if train.batch_size:
            examples.append(train.batch_size)
        else:
            tokens.append(train.batch_tokens)
    texts = []
    if examples:
        texts.append(f"{_distinct_values(examples)} {examples_of(data)}")
    if tokens:
        texts.append(f"up to {_distinct_values(tokens)} tokens")
    return " / ".join(texts)


def _layers(variants: Sequence[VariantRecord], data: Mapping[str, Any]) -> str:
    """Return the distinct numbers of layers as text, with the pair format of decoder-only models once."""
    distinct: dict[str, ModelConfig] = {}
    for variant in variants:
        model = variant.config.model
        distinct.setdefault(layers_text(model), model)
    reading = reading_of(data)
    texts = []
    for model in distinct.values():
        texts.append(layers_text(model, reading))
        if model.architecture == "decoder-only":
            reading = ""  # once is enough
    return _distinct_values(texts)


def _range(smallest: str, largest: str) -> str:
    """Return a range, or its only value if both ends are the same text."""
    return smallest if smallest == largest else f"{smallest} to {largest}"


TUNED_IN_SHORT = "{rate}, tuned"
TUNED = "{rate}, tuned for each variant on {metric} over {values}{length}"
TUNED_AT_THE_EDGE = (
    "{rate}, tuned for each variant on {metric} over {values}{length}, where the best value may be outside for {edges} "
    "of {variants} variants"
)


def learning_rate(analysis: Analysis) -> str:
    """Return the learning rates of the study as text, and how they were chosen.

    They were tuned, differ between variants, are the default, or another one that all variants have. Of a sweep that
    has ended, the text has the number of variants with a best value at its edge, in any tuned field, if there are any.
    """
    rate = _values_by_field(analysis)[LEARNING_RATE]
    tuning = _tuned_rates(analysis)
    if tuning is not None:
        return _tuned_rate(rate, tuning)
    rates = {variant.config.train.lr for variant in analysis.frames.by_slug.values()}
    if len(rates) > 1:
        return f"{rate}, varied by the experiment"
    if rates == {TrainConfig.model_fields["lr"].default}:
        return f"{rate}, the default"
    return f"{rate}, the same for all variants"


def _tuned_rates(analysis: Analysis) -> TuningRecord | None:
    """Return the sweep that has chosen the learning rates; None without one."""
    tuning = analysis.frames.record.tuning
    if tuning is not None and tuning.variants and LEARNING_RATE in tuning.fields:
        return tuning
    return None


def _tuned_rate(rate: str, tuning: TuningRecord) -> str:
    """Return learning rates that a sweep chose, and how; ``tuning`` has ended and its fields have the learning rate."""
    tuned = tuning.variants.values()
    rates = {trial.values[LEARNING_RATE] for variant in tuned for trial in variant.tried}
    num_at_the_edge = sum(bool(variant.at_the_edge) for variant in tuned)
    template = TUNED_AT_THE_EDGE if num_at_the_edge else TUNED
    return template.format(
        rate=rate,
        metric=tuning.metric,
        values=_distinct_values(sorted(rates), len(rates)),
        length=_length(tuning),
        edges=num_at_the_edge,
        variants=len(tuned),
    )


def _length(tuning: TuningRecord) -> str:
    """Return the length of the tuning runs, if it is not that of the study's."""
    if tuning.epochs is None:
        return ""
    return f" with train.epochs {value_text(tuning.epochs)}"


def setup_section(report: Report) -> Section:
    """Return `complete_setup`, the configuration with a row per section, and the entries in which variants differ.

    Of a field with different values, all are listed, beyond MAX_VALUES a range or their number.
    """
    sections = {
        "seeds": [", ".join(map(str, report.analysis.frames.seeds))],
        "match": [str(report.record.match)],
    }
    for path, value in _values_by_field(report.analysis).items():
        section, _, name = path.partition(".")
        sections.setdefault(section, []).append(f"{name} {value}")
    rows = []
    for section, values in sections.items():
        rows.append({"setting": section, "value": ", ".join(values)})
    entries = []
    for entry in report.record.entries:
        summary = entry.summary.replace("`", "")
        entries.append(f"{entry.name}: {summary}")
    text = complete_setup(report.analysis)
    return Section("Set-up", text, hint="every setting", frame=table(rows), lines=entries)


SWEEP_CAPTION = "Mean over seeds, one standard deviation on both sides. A star is the chosen value of the variant."
FIRST_VARIANTS = f" The first {MAX_LINES} variants."
TUNING = (
    "Every variant was trained with several settings on seeds {seeds}{length}, which the comparison does not use "
    "(experiment {experiment}). Numbers are means of {metric}. Dark: the setting that the comparison uses, if it is "
    "one of these; the minimum of a parabola in the logarithm of the value is between them.{empty}"
)
EMPTY = " Empty: a further value, which is tried only where the best one was at an edge."
AT_THE_EDGE = "The best value may be outside the sweep, so that a wider sweep may change the comparison: {variants}."


def tuning_section(report: Report) -> Section | None:
    """Return the losses of the tuning sweep with its figure, or the figure of an axis of learning rates.

    None without both; a tuning sweep that has not ended counts as none.
    """
    record, sweep = report.record.tuning, report.analysis.sweep
    caption = SWEEP_CAPTION
    if sweep and sweep.rows["variant"].nunique() > MAX_LINES:
        caption += FIRST_VARIANTS
    lines = [sweep.sentence] if sweep else []
    if record is not None and record.variants:
        return _tuning_table(report, record, caption, lines)
    if sweep is None:
        return None
    return Section(f"Sweep of {sweep.field}", figure="sweep", caption=caption, lines=lines)


def _tuning_table(
    report: Report, record: TuningRecord, caption: str, lines: Sequence[str]
) -> Section:
    """Return the losses of the tuning runs, a row per variant and a column per setting, the chosen ones shaded.

    Two further columns have the chosen setting and the rule that chose it. Tuned variants that are not in the study
    have no row. A setting that a variant did not try is empty.

    Args:
        report: The report.
        record: A sweep that has ended.
        caption: Caption of the figure ``sweep``.
        lines: Lines below the table; a line on variants at the edge of the sweep follows, if there are any.
    """
    settings = _settings(report, record)
    rows = []
    shade = []
    at_the_edge = []
    for slug, variant in record.variants.items():
        if slug not in report.analysis.frames.by_slug:
            continue
        trials = {tuple(trial.values.values()): trial for trial in variant.tried}
        row = {record.metric: report.title(slug)}
        shades = [0]
        for setting in settings:
            trial = trials.get(tuple(setting.values()))
            row[_setting_name(setting)] = _loss(trial, record.metric)
            shades.append(CHOSEN_SHADE if setting == variant.chosen else 0)
        row["chosen"] = _setting_name(variant.chosen)
        row["rule"] = variant.how
        shades += [0, 0]
        rows.append(row)
        shade.append(shades)
        if variant.at_the_edge:
            at_the_edge.append(report.title(slug))
    if at_the_edge:
        lines = [*lines, AT_THE_EDGE.format(variants=listed(at_the_edge))]
    text = TUNING.format(
        seeds=", ".join(map(str, record.seeds)),
        length=_length(record),
        experiment=record.experiment,
        metric=record.metric,
        empty=EMPTY if any("" in row.values() for row in rows) else "",
    )
    return Section(
        "Tuning",
        text,
        hint="the sweep and the chosen values",
        figure="sweep",
        caption=caption,
        frame=table(rows),
        shade=shade,
        lines=lines,
    )


def _settings(report: Report, record: TuningRecord) -> list[Mapping[str, Any]]:
    """Return the tried settings of the study's variants, each once, in ascending order.

    Settings that are not all numbers stay in the order of the file.
    """
    settings: list[Mapping[str, Any]] = []
    for slug, variant in record.variants.items():
        if slug in report.analysis.frames.by_slug:
            for trial in variant.tried:
                if trial.values not in settings:
                    settings.append(trial.values)
    with suppress(TypeError):  # numbers are not compared with texts or null
        return sorted(settings, key=lambda values: list(values.values()))
    return settings


def _setting_name(values: Mapping[str, Any]) -> str:
    """Return the tuned values of a trial, each with the last part of its path as name."""
    names = []
    for path, value in values.items():
        names.append(f"{path.rpartition('.')[2]} {value_text(value)}")
    return ", ".join(names)


def _loss(trial: TrialRecord | None, metric: str) -> str:
    """Return the mean and deviation of a trial; empty without a trial, ``diverged`` for a trial without a mean."""
    if trial is None:
        return ""
    if trial.mean is None:
        return "diverged"
    mean = show(trial.mean, metric)
    if trial.sd is None:
        return mean
    return f"{mean}\nsd {show(trial.sd, metric)}"


RUNS = "{runs}: {variants}, {seeds}. {lost} without a result, {excluded} combinations excluded, {reused} reused."
SOURCES = {"exclude": "by the experiment file", "incompatible": "incompatible"}


def runs_section(report: Report) -> Section:
    """Return the numbers of runs, tables of those that are not DONE, excluded and reused, and the notes of the plan.

    The tables of runs have at most MAX_ROWS rows each, while the numbers count all; a table without rows is left out.
    Diverged runs have a result, and a table of their own.
    """
    frames = report.analysis.frames
    lost = frames.runs[~frames.has_result]
    diverged = frames.runs[frames.runs["state"] == states.DIVERGED]
    reused = frames.runs[frames.runs["reused_from"].notna()]
    excluded_rows = []
    for record in report.record.excluded:
        row = {"combination": record.title, "reason": record.reason}
        row["excluded"] = SOURCES[record.source]
        excluded_rows.append(row)
    reused_rows = []
    for _, run in reused[:MAX_ROWS].iterrows():
        row = {"variant": str(run["title"]), "seed": str(run["seed"])}
        row["trained in"] = str(run["reused_from"])
        reused_rows.append(row)
    tables = {
        "Runs without a result": _ended_runs(lost),
        "Diverged runs": _ended_runs(diverged),
        "Excluded combinations": excluded_rows,
        "Reused runs": reused_rows,
    }
    text = RUNS.format(
        runs=counted(len(frames.runs), "run"),
        variants=counted(len(frames.by_slug), "variant"),
        seeds=counted(len(frames.seeds), "seed"),
        lost=len(lost),
        excluded=len(excluded_rows),
        reused=len(reused),
    )
    parts = [Section(title, frame=table(rows)) for title, rows in tables.items() if rows]
    return Section(
        "Runs", text, hint="failed, excluded and reused", lines=report.record.notes, parts=parts
    )


def _ended_runs(runs: pd.DataFrame) -> list[dict[str, str]]:
    """Return the cells of the first MAX_ROWS runs by column; steps and reason are a dash if they are unknown.

    Args:
        runs: Rows of `Frames.runs`.
    """
    rows = []
    for _, run in runs[:MAX_ROWS].iterrows():
        row = {"variant": str(run["title"]), "seed": str(run["seed"]), "state": str(run["state"])}
        row["reason"] = str(run["reason"] or "–")
        row["step"] = "–"
        if run[["step", "steps"]].notna().all():
            row["step"] = f"{run['step']:.0f} of {run['steps']:.0f}"
        rows.append(row)
    return rows


SEVERAL_SEEDS = "Intervals of means are 95 % t-intervals over seeds."
SINGLE_SEED = "With a single seed there is no interval."
PAIRED = "Every contrast is paired by seed. Its variance over seeds is that of its own differences."
MODERATED = (
    "Every contrast is paired by seed. Its variance over seeds is moderated: a weighted mean of the variance of its "
    "own differences and of a common variance, the larger of the residual variance of all variants and the mean "
    "variance of the contrasts of the family."
)
RATIO = (
    "The mean variance of the contrasts is {ratio} times the residual variance ({family}); about 1 is expected if a "
    "seed has the same effect on all variants."
)
VARIABLE = (
    "Scores of these variants vary more over seeds than those of the others on the same data: {variants}. Contrasts "
    "of these variants use the variance of their own differences."
)
VARIABLE_BY = "{name} ({ratio:.1f} times{of_others})"
OF_OTHERS = " the standard deviation of the others"
INTERVAL = (
    "Each difference has one interval. The k differences of a family ({families}) have intervals at the level "
    "0.95^(1/k) each, so that all of them contain the true differences in at least 95 % of studies. Every word is "
    "read off the interval: better or worse if it excludes 0; no difference shown if it contains 0. p is 1 − (1 − p "
    "of the difference)^k."
)
MARGIN = (
    "By more than the margin: the interval excludes every smaller difference. By less: it lies within the margin. "
    "Equivalent: it contains 0 and lies within the margin."
)
NO_MARGIN = "Without a margin, no difference shown is not a sign of equality."
LOOKS = (
    "Looks: the intervals have the nominal level at which those of all planned looks are simultaneous, by the joint "
    "distribution of their t-tests (Pocock)."
)
ERROR_RATE = (
    "Error rate of the whole report: {families} families, each with a wrong interval in about 5 % of studies or fewer "
    "if variances are similar; then any wrong interval of the report in about {percent} % or fewer."
)


def statistics_section(report: Report) -> Section:
    """Return the statistical methods and the limits that follow from the number of seeds.

    Without a tested family, the methods are a line on how intervals are computed, and sequential seeds and few seeds
    have no line. Variances are described as moderated from three trained variants on, and variants of a larger variance
    are named. If the report has several tested
    families, a line states the error rate of all together; the ranking of pairs counts as a family.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    analysis = report.analysis
    frames = analysis.frames
    tested = []
    for name in FAMILIES_IN_WORDS:
        if analysis.families.tested(name):
            tested.append(name)
    trained = {frames.trained(slug) for slug in frames.by_slug}
    if not tested:
        lines = [SEVERAL_SEEDS if len(frames.seeds) > 1 else SINGLE_SEED]
    else:
        lines = [PAIRED]
        if len(trained) > 2:
            lines = [MODERATED, *_ratio_lines(analysis, tested), *_variable_lines(analysis)]
        lines.append(INTERVAL.format(families=listed([FAMILIES_IN_WORDS[name] for name in tested])))
        lines.append(MARGIN if report.record.margins else NO_MARGIN)
        if analysis.looks:
            lines.append(LOOKS)
    families = len(tested)
    if analysis.two_way is not None:
        families += 1
    if families > 1:
        lines.append(ERROR_RATE.format(families=families, percent=5 * families))
    if tested and len(frames.seeds) < SIGN_FLIP_SEEDS:
        lines.append(f"{few_seeds(len(frames.seeds))}.")
    return Section("Statistics", hint="how intervals and words are computed", lines=lines)


def _ratio_lines(analysis: Analysis, tested: Sequence[str]) -> list[str]:
    """Return the ratio of the two variances for each family that shares a variance."""
    lines = []
    for name in tested:
        ratio = analysis.families.variance_ratio(name)
        if math.isfinite(ratio):
            lines.append(RATIO.format(ratio=f"{ratio:.2g}", family=FAMILIES_IN_WORDS[name]))
    return lines


def _variable_lines(analysis: Analysis) -> list[str]:
    """Return a line on the variants with a significantly larger variance over seeds than the others on their data.

    The ratios are those of the standard deviations of the primary metric (`Analysis.sd_ratios`).

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if not analysis.sd_ratios:
        return []
    names = separable([analysis.frames.by_slug[slug].title for slug in analysis.sd_ratios])
    clauses: list[str] = []
    for ratio, name in zip(analysis.sd_ratios.values(), names, strict=True):
        of_others = "" if clauses else OF_OTHERS  # once is enough
        clauses.append(VARIABLE_BY.format(name=name, ratio=ratio, of_others=of_others))
    return [VARIABLE.format(variants=", ".join(clauses))]


OTHER_TESTS = (
    "No verdict rests on these tests. The paired t-test has the variance of the contrast's own differences over "
    "seeds; it differs if, corrected like the intervals, it disagrees on whether there is a difference. The sign-flip "
    "test permutes the signs of the differences. Their p are not corrected. The effect is the mean difference divided "
    "by its standard deviation, Hedges-corrected."
)


def other_tests_section(report: Report) -> Section | None:
    """Return the paired t-tests and sign-flip tests of the contrasts with at least two seeds; None without any.

    Contrasts of the same difference have one row, that of the first family.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    rows = []
    keys = set()
    for family in report.analysis.families:
        for contrast in family.contrasts:
            paired = contrast.paired
            difference = contrast.trained.key  # equal for contrasts of the same runs
            if paired is None or paired.n < 2 or difference in keys:
                continue
            keys.add(difference)
            rows.append(
                {
                    "contrast": contrast.name,
                    "verdict": contrast.verdict,
                    "paired t-test": "differs" if contrast.is_unlike_paired_test else "agrees",
                    "paired t p": show_p(paired.paired_p),
                    "sign-flip p": show_p(paired.sign_flip_p),
                    "effect": show(paired.effect, "effect", signed=True, digits=-2),
                }
            )
    if not rows:
        return None
    return Section("Other tests", OTHER_TESTS, hint="paired t and sign-flip", frame=table(rows))


PLATFORM = re.compile(r"([A-Za-z]+)-.*?(x86_64|aarch64|arm64|AMD64)")
"""Operating system and processor: the parts of a platform that a result can depend on."""


def reproduction_section(report: Report) -> Section:
    """Return the commands, the versions at planning, and the experiment file as a part.

    Versions that were not recorded have no row. An experiment without a recorded file text has no part with it.
    """
    record = report.record
    experiment = record.name
    # An experiment that was run with --name is found by its name only.
    if record.file and Path(record.file).stem == record.name:
        experiment = record.file
    commands = f"{record.command}\nh2h report {experiment}"
    if report.analysis.allow_partial:
        commands += " --allow-partial"
    rows = []
    for name, version in record.versions.items():
        if version is None:
            continue
        shown = _short_version(name, str(version))
        rows.append({"software": name.replace("_", " "), "version": shown})
    parts = []
    if record.text:
        title = record.file or "experiment file"
        parts.append(Section(title, code=record.text))
    return Section(
        "Reproduction",
        hint="commands, versions, experiment file",
        code=commands,
        frame=table(rows),
        parts=parts,
    )


def _short_version(name: str, version: str) -> str:
    """Return a version; of the platform, only the parts that a result can depend on."""
    platform = PLATFORM.match(version)
    if name != "platform" or platform is None:
        return version
    return " ".join(platform.groups())


def _values_by_field(analysis: Analysis) -> dict[str, str]:
    """Return the distinct values of each field of the configuration over all variants, the baseline's first."""
    by_slug = analysis.frames.by_slug
    fields: dict[str, list[Any]] = {}
    for variant in [by_slug[analysis.frames.baseline], *by_slug.values()]:
        for path, value in _used_fields(variant).items():
            fields.setdefault(path, []).append(value)
    return {path: _distinct_values(values) for path, values in fields.items()}


def _used_fields(variant: VariantRecord) -> dict[str, Any]:
    """Return the values of the fields that a variant depends on, by path, such as ``model.heads``.

    Fields of roles that its architecture lacks are left out, and the batch in tokens if the batch is in examples.
    """
    config = variant.config
    content = config.model_dump()
    for section in COMPONENTS:  # some are omitted from the record at their default
        content[section] = getattr(config, section).model_dump()
    fields = dict(leaves(content))
    fields["model.architecture"] = config.model.architecture
    if config.train.batch_size:
        fields.pop("train.batch_tokens", None)
    absent_roles = set(ROLES) - set(config.roles)
    used = {}
    for path, value in fields.items():
        words = set(re.split(r"[._]", path))
        if not absent_roles & words:
            used[path] = value
    return used


def _distinct_values(values: Sequence[Any], most: int = MAX_VALUES) -> str:
    """Return the distinct values as text: a list, or if there are more than ``most`` a range or their number.

    ``values`` has at least one value. Only numbers have a range.
    """
    distinct = list(dict.fromkeys(map(_value_as_text, values)))
    if len(distinct) <= most:
        return " / ".join(distinct)
    if all(isinstance(value, int | float) for value in values):
        return f"{_value_as_text(min(values))} to {_value_as_text(max(values))}"
    return f"({len(distinct)} values)"


def _value_as_text(value: Any) -> str:
    """Return a value as text: the name of an absolute path, the items of a list separated by spaces, or ``none``."""
    if isinstance(value, list | tuple):
        return " ".join(map(_value_as_text, value)) or "none"
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name  # the data hash identifies the content, wherever the file is
    return f"{value:g}" if isinstance(value, float) else value_text(value)
