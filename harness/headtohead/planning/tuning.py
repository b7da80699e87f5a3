"""Tuning: the same small sweep for every variant before the experiment, for a fair comparison.

The sweep is an experiment of its own, ``<name>-tuning``: every variant with every setting. Its seeds
cannot be used by any experiment, so that settings are chosen on other runs than those that are
compared. The settings may differ within a stack, so the runs train stacked. A variant gets the
setting with the lowest mean validation loss. If a number of it is the smallest or largest of the sweep, the
variant is trained with one more value beyond it, and the choice is made again.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headtohead.config.builder import SECTION_ENTRIES, assignment_order
from headtohead.config.labels import Scalar, label_at
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation
from headtohead.config.validation_errors import find_field
from headtohead.errors import HeadToHeadError
from headtohead.planning.between import END, START
from headtohead.planning.design import Axes, Design, Written
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import TUNING_METRIC, Plan, TuningSetting
from headtohead.planning.variants import Variant
from headtohead.schema.experiment_file import AUTO_FACTORS, MAX_SEED, Metrics
from headtohead.schema.run_config import MEMBER_FIELDS, SHORTHANDS, RunConfig, changed
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory, TrialRecord, TunedVariant
from headtohead.storage.run_directory import RunDirectory

MAX_WIDENINGS = 3
"""How often the sweep of a variant gets a further value."""

Field = tuple[str, str]
"""Section and name of a configuration field."""


def settings_of(loaded: LoadedExperiment, design: Design) -> tuple[TuningSetting, ...]:
    """Return the settings of the experiment file's ``tune`` section.

    Raises:
        HeadToHeadError: For a field that cannot be tuned or an invalid value, with its location in the file.
    """
    tune = loaded.file.tune
    assert tune is not None
    location = loaded.location("tune")
    for path in tune:
        _refuse_field(path, design, location.child(path))
    if not tune:
        raise location.error("tune has no field; add one, such as train.lr: [0.001, 0.003]")
    axes = Axes(loaded)
    choices = []
    for path, values in tune.items():
        listed = _around(design, path, location) if values == "auto" else values
        choices.append(axes.choices({path: listed}, location))
    settings: dict[tuple[Scalar, ...], TuningSetting] = {}
    for parts in itertools.product(*choices):
        written: dict[str, Written] = {}
        for part in parts:
            written |= part
        builder = design.start.copy()
        for path in sorted(written, key=assignment_order):
            builder.assign(tuple(path.split(".")), *written[path])
        setting = _setting(builder.build(), tune)
        # Values that are written differently but equal are one setting.
        settings.setdefault(tuple(setting.values.values()), setting)
    return tuple(settings.values())


def _setting(config: RunConfig, paths: Iterable[str]) -> TuningSetting:
    """Return the setting that a configuration has in the tuned fields."""
    labels = {}
    changes: dict[str, dict[str, Any]] = {}
    for path in paths:
        labels[path] = label_at(config, tuple(path.split(".")))
        for section, name in _fields_of(path):
            changes.setdefault(section, {})[name] = _value_of(config, (section, name))
    return TuningSetting(labels, changes)


def _refuse_field(path: str, design: Design, location: SourceLocation) -> None:
    """Raise if a field cannot be tuned, or if the design compares its values."""
    allowed = ["model.dropout"]
    for section, names in MEMBER_FIELDS.items():
        allowed += [f"{section}.{name}" for name in names]
    is_option = tuple(path.split(".")[:2]) in SECTION_ENTRIES
    if path not in allowed and not is_option:
        field = find_field(path)
        hint = f"; use one of {', '.join(sorted(allowed))}"
        if field in allowed:
            hint = f"; did you mean '{field}'?"
        raise location.error(f"'{path}' cannot be tuned{hint}")
    if _is_compared(design, _fields_of(path)):
        raise location.error(f"the design compares values of '{path}'; remove it from tune")


def _is_compared(design: Design, fields: Collection[Field]) -> bool:
    """Return whether these fields are an axis of the design, or differ between the configurations of ``between``."""
    if not design.changes:
        return any(_fields_of(axis) & {*fields} for axis in design.axes)
    start = design.variant(START).config
    end = design.variant(END).config
    return any(_value_of(start, field) != _value_of(end, field) for field in fields)


def _around(design: Design, path: str, location: SourceLocation) -> Sequence[float]:
    """Return the values of ``auto``: multiples of the value of the baseline that the field can have.

    Raises:
        HeadToHeadError: If the baseline's value is no number above 0.
    """
    section, name = min(_fields_of(path))
    value = _value_of(design.variant(design.baseline).config, (section, name))
    if not isinstance(value, int | float) or value <= 0:
        raise location.child(path).error(
            f"auto needs a number above 0 in base, got {value}; list the values"
        )
    numbers: list[float] = []
    for factor in AUTO_FACTORS:
        number = _like(value, float(f"{factor * value:.6g}"))
        is_valid = TuningSetting({}, {section: {name: number}}).is_valid
        if is_valid and number not in numbers:
            numbers.append(number)
    return numbers


def widened(
    settings: tuple[TuningSetting, ...], tuned: TunedVariant | None
) -> tuple[TuningSetting, ...]:
    """Return the settings of a variant with one more for each field whose chosen value is at the edge of the sweep."""
    if tuned is None:
        return settings
    best = next(setting for setting in settings if setting.values == tuned.chosen)
    added = []
    for path in tuned.at_the_edge:
        tried = sorted(_numbers(path, [setting.values for setting in settings]))
        if best.values[path] == tried[-1]:
            tried.reverse()
        setting = _with_value(best, path, _beyond(tried[0], tried[1]))
        if setting.is_valid and setting not in settings:
            added.append(setting)
    return (*settings, *added)


def _beyond(edge: float, neighbour: float) -> float:
    """Return the value that follows the edge of a sweep, at the ratio of the edge to the value before it."""
    value = edge * edge / neighbour if neighbour else 2 * edge
    return _like(edge, float(f"{value:.6g}"))


def _with_value(setting: TuningSetting, path: str, value: float) -> TuningSetting:
    """Return a setting with another value of a field; other tuned fields of a shorthand keep theirs."""
    fields = _fields_of(path)
    for tuned_path in setting.values:
        if _fields_of(tuned_path) < _fields_of(path):
            fields = fields - _fields_of(tuned_path)
    changes = {section: dict(values) for section, values in setting.changes.items()}
    for section, name in fields:
        changes[section][name] = _like(changes[section][name], value)
    return TuningSetting({**setting.values, path: value}, changes)


def _like(example: Any, value: float) -> float:
    """Return a value, rounded to a whole number if the example is one."""
    return round(value) if isinstance(example, int) else value


def _fields_of(path: str) -> set[Field]:
    """Return the fields that a path sets: the field, those of a shorthand, or the entry that has an option."""
    section, _, below = path.partition(".")
    name, _, _ = below.partition(".")
    return {(section, field) for field in SHORTHANDS.get((section, name), (name,))}


def _value_of(config: RunConfig, field: Field) -> Any:
    section, name = field
    return getattr(getattr(config, section), name)


def sweep(
    loaded: LoadedExperiment, design: Design, settings: Mapping[str, Sequence[TuningSetting]]
) -> tuple[LoadedExperiment, Design]:
    """Return the experiment that trains every variant with every of its settings."""
    # They do not depend on the seeds of the experiment, so that more of those are possible.
    seeds = tuple(MAX_SEED + number for number in range(1, loaded.file.tune_seeds + 1))
    first = settings[design.baseline][0]
    file = loaded.file.model_copy(
        update={
            "question": f"Which {' and '.join(first.values)} suits each variant of {loaded.name}?",
            "tune": None,
            "tune_epochs": None,
            "metrics": Metrics(primary=TUNING_METRIC, report=()),
            "seeds": list(seeds),
        }
    )
    variants = []
    for variant in design.variants:
        for setting in settings[variant.slug]:
            variants.append(_swept(variant, setting, loaded.file.tune_epochs))
    swept_design = Design(
        axes=(*design.axes, *first.values),
        variants=tuple(variants),
        baseline=f"{design.baseline}-{first.slug}",
        excluded=(),
        seeds=seeds,
        start=design.start,
    )
    return replace(loaded, name=loaded.sweep_name, file=file, seeds=seeds), swept_design


def _swept(variant: Variant, setting: TuningSetting, epochs: float | None) -> Variant:
    """Return a variant with a setting, and with the epochs of the sweep if these are set."""
    config = setting.apply(variant.config)
    if epochs is not None:
        config = changed(config, train={"epochs": epochs, "steps": None, "tokens": None})
    return Variant(
        slug=f"{variant.slug}-{setting.slug}",
        title=f"{variant.title} · {setting.name}",
        axes={**variant.axes, **setting.values},
        config=config,
        match=variant.match,
    )


RecordedTrials = Mapping[tuple[str, ...], TrialRecord]
"""Trials of an earlier plan by the hashes of their runs."""


def recorded_trials(experiment: Path) -> RecordedTrials:
    """Return the trials in the record of an experiment; none without a record, or if it is damaged."""
    try:
        tuning = ExperimentDirectory.read(experiment).record.tuning
    except HeadToHeadError:
        return {}
    if tuning is None:
        return {}
    return {trial.runs: trial for tuned in tuning.variants.values() for trial in tuned.tried}


def tuned_variants(
    design: Design,
    settings: Mapping[str, Sequence[TuningSetting]],
    plan: Plan,
    recorded: RecordedTrials,
) -> dict[str, TunedVariant]:
    """Return the best and all tried settings of each variant whose settings all have a trial.

    Of equal settings, the first is the best. A setting with a diverged run has no mean and is chosen last.

    Args:
        design: The design of the experiment.
        settings: The settings by variant.
        plan: The plan of the sweep.
        recorded: The trials of settings whose runs were deleted.
    """
    tuned = {}
    for variant in design.variants:
        tried = []
        for setting in settings[variant.slug]:
            trial = _trial(plan, f"{variant.slug}-{setting.slug}", setting, recorded)
            if trial is not None:
                tried.append(trial)
        if len(tried) == len(settings[variant.slug]):
            tuned[variant.slug] = _choice(tuple(tried))
    return tuned


def _trial(
    plan: Plan, slug: str, setting: TuningSetting, recorded: RecordedTrials
) -> TrialRecord | None:
    """Return the trial of a setting from its runs, else the recorded trial of the same runs, else None."""
    runs = plan.runs_of(slug)
    hashes = tuple(run.run_hash for run in runs)
    if not all(run.is_done for run in runs):
        trial = recorded.get(hashes)
        # The notation of equal values may have changed.
        return trial.model_copy(update={"values": setting.values}) if trial else None
    losses = [_loss(plan, run) for run in runs]
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(finite) < len(losses):
        return TrialRecord(values=setting.values, runs=hashes, mean=None, sd=None)
    sd = statistics.stdev(finite) if len(finite) > 1 else None
    return TrialRecord(values=setting.values, runs=hashes, mean=statistics.fmean(finite), sd=sd)


def _loss(plan: Plan, run: PlannedRun) -> float | None:
    """Return the validation loss of a run with a result; None if it diverged."""
    if run.state != states.DONE:
        return None
    results = RunDirectory(run.path(plan.directory)).results
    return results.metrics.get(TUNING_METRIC) if results else None


def _choice(tried: tuple[TrialRecord, ...]) -> TunedVariant:
    """Return the setting with the lowest loss, and the fields in which it is at the edge of the sweep."""
    best = min(tried, key=lambda trial: math.inf if trial.mean is None else trial.mean)
    edges = []
    for field, value in best.values.items():
        numbers = _numbers(field, [trial.values for trial in tried])
        is_edge = len(numbers) > 1 and value in (min(numbers), max(numbers))
        if is_edge and value:  # no value follows 0
            edges.append(field)
    return TunedVariant(chosen=best.values, at_the_edge=tuple(edges), tried=tried)


def _numbers(path: str, values: Iterable[Mapping[str, Any]]) -> set[float]:
    """Return the numbers of a sweep among the values of a field."""
    numbers = set()
    for setting in values:
        value = setting[path]
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers.add(value)
    return numbers
