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
from headtohead.planning.design import Axes, Design
from headtohead.planning.plan import TUNING_METRIC, Plan, PlannedRun, TuningSetting
from headtohead.planning.variants import Variant
from headtohead.plugins.registry import Registry
from headtohead.schema.experiment_file import AUTO_FACTORS, MAX_SEED, Metrics
from headtohead.schema.run_config import MEMBER_FIELDS, SHORTHANDS, changed
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory, TrialRecord, TunedVariant
from headtohead.storage.run_directory import RunDirectory

MAX_WIDENINGS = 3
"""How often the sweep of a variant gets a further value."""


def settings_of(
    loaded: LoadedExperiment, design: Design, registry: Registry
) -> tuple[TuningSetting, ...]:
    """Return the settings of the experiment file's ``tune`` section.

    Raises:
        HeadToHeadError: For a field that cannot be tuned or an invalid value, with its location in the file.
    """
    tune = loaded.file.tune
    assert tune is not None
    location = loaded.location("tune")
    allowed = [
        "model.dropout",
        *(f"{section}.{name}" for section, names in MEMBER_FIELDS.items() for name in names),
    ]
    for path in tune:
        is_option = tuple(path.split(".")[:2]) in SECTION_ENTRIES
        if path not in allowed and not is_option:
            field = find_field(path)
            hint = (
                f"; did you mean '{field}'?"
                if field in allowed
                else f"; use one of {', '.join(sorted(allowed))}"
            )
            raise location.child(path).error(f"'{path}' cannot be tuned{hint}")
        if _is_compared(design, _fields_of(path)):
            raise location.child(path).error(
                f"the design compares values of '{path}'; remove it from tune"
            )
    if not tune:
        raise location.error("tune has no field; add one, such as train.lr: [0.001, 0.003]")
    axes = Axes(loaded, registry)
    settings: dict[tuple[Scalar, ...], TuningSetting] = {}
    listed = {
        path: _around(design, path, location) if values == "auto" else values
        for path, values in tune.items()
    }
    for parts in itertools.product(
        *(axes.choices({path: values}, location) for path, values in listed.items())
    ):
        builder = design.start.copy()
        written = {path: item for part in parts for path, item in part.items()}
        for path in sorted(written, key=assignment_order):
            builder.assign(tuple(path.split(".")), *written[path])
        config = builder.build()
        values = {path: label_at(config, tuple(path.split("."))) for path in tune}
        changes: dict[str, dict[str, Any]] = {}
        for section, name in sorted(set().union(*map(_fields_of, tune))):
            changes.setdefault(section, {})[name] = getattr(getattr(config, section), name)
        # Values that are written differently but equal are one setting.
        settings.setdefault(tuple(values.values()), TuningSetting(values, changes))
    return tuple(settings.values())


def _is_compared(design: Design, fields: Collection[tuple[str, str]]) -> bool:
    """Return whether these fields are an axis of the design, or differ between the configurations of ``between``."""
    if not design.changes:
        return any(_fields_of(axis) & {*fields} for axis in design.axes)
    ends = [design.variant(slug).config for slug in (START, END)]
    return any(
        len({getattr(getattr(end, section), name) for end in ends}) > 1 for section, name in fields
    )


def _around(design: Design, path: str, location: SourceLocation) -> Sequence[float]:
    """Return the values of ``auto``: multiples of the value of the baseline that the field can have."""
    section, field = sorted(_fields_of(path))[0]
    value = getattr(getattr(design.variant(design.baseline).config, section), field)
    if not isinstance(value, int | float) or value <= 0:
        raise location.child(path).error(
            f"auto needs a number above 0 in base, got {value}; list the values"
        )
    found = [float(f"{factor * value:.6g}") for factor in AUTO_FACTORS]
    numbers = dict.fromkeys(map(round, found) if isinstance(value, int) else found)
    return [number for number in numbers if TuningSetting({}, {section: {field: number}}).is_valid]


def widened(
    settings: tuple[TuningSetting, ...], tuned: TunedVariant | None
) -> tuple[TuningSetting, ...]:
    """Return the settings of a variant with one more for each field whose chosen value is at the edge of the sweep."""
    if tuned is None:
        return settings
    best = next(setting for setting in settings if setting.values == tuned.chosen)
    added = []
    for path in tuned.at_the_edge:
        # A field of a shorthand that is tuned too keeps its own value.
        inner = set().union(
            *(fields for fields in map(_fields_of, best.values) if fields < _fields_of(path))
        )
        tried_numbers = _numbers(path, [setting.values for setting in settings])
        numbers = sorted(tried_numbers, reverse=best.values[path] == max(tried_numbers))
        edge, neighbour = numbers[:2]
        further = float(f"{edge * edge / neighbour if neighbour else 2 * edge:.6g}")
        changes = {section: dict(fields) for section, fields in best.changes.items()}
        for section, field in _fields_of(path) - inner:
            changes[section][field] = (
                round(further) if isinstance(changes[section][field], int) else further
            )
        setting = TuningSetting(
            {**best.values, path: round(further) if isinstance(edge, int) else further}, changes
        )
        if setting.is_valid and setting not in settings:
            added.append(setting)
    return (*settings, *added)


def _fields_of(path: str) -> set[tuple[str, str]]:
    """Return the fields that a path sets: the field, or those of a shorthand."""
    section, _, name = path.partition(".")
    return {(section, field) for field in SHORTHANDS.get((section, name), (name,))}


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
    for variant, setting in [
        (own, setting) for own in design.variants for setting in settings[own.slug]
    ]:
        config = setting.apply(variant.config)
        if loaded.file.tune_epochs is not None:
            config = changed(
                config, train={"epochs": loaded.file.tune_epochs, "steps": None, "tokens": None}
            )
        slug, title = f"{variant.slug}-{setting.slug}", f"{variant.title} · {setting.name}"
        variants.append(
            Variant(slug, title, {**variant.axes, **setting.values}, config, variant.match)
        )
    return (
        replace(loaded, name=loaded.sweep_name, file=file, seeds=seeds),
        Design(
            axes=(*design.axes, *first.values),
            variants=tuple(variants),
            baseline=f"{design.baseline}-{first.slug}",
            excluded=(),
            seeds=seeds,
            start=design.start,
        ),
    )


RecordedTrials = Mapping[tuple[str, ...], TrialRecord]
"""Trials of an earlier plan by the hashes of their runs."""


def recorded_trials(experiment: Path) -> RecordedTrials:
    """Return the trials in the record of an experiment; none without a record, or if it is damaged."""
    try:
        tuning = ExperimentDirectory.read(experiment).record.tuning
    except HeadToHeadError:
        return {}
    variants = tuning.variants.values() if tuning else ()
    return {trial.runs: trial for variant in variants for trial in variant.tried}


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
        own = settings[variant.slug]
        found = [
            _trial(plan, f"{variant.slug}-{setting.slug}", setting, recorded) for setting in own
        ]
        tried = tuple(trial for trial in found if trial is not None)
        if len(tried) == len(own):
            tuned[variant.slug] = _choice(tried)
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
    results = RunDirectory(run.path(plan.directory)).results if run.state == states.DONE else None
    return results.metrics.get(TUNING_METRIC) if results else None


def _choice(tried: tuple[TrialRecord, ...]) -> TunedVariant:
    """Return the setting with the lowest loss, and the fields in which it is at the edge of the sweep."""
    best = min(tried, key=lambda trial: math.inf if trial.mean is None else trial.mean)
    edges = []
    for field, value in best.values.items():
        numbers = _numbers(field, [trial.values for trial in tried])
        if (
            value and len(numbers) > 1 and value in (min(numbers), max(numbers))
        ):  # no value follows 0
            edges.append(field)
    return TunedVariant(chosen=best.values, at_the_edge=tuple(edges), tried=tried)


def _numbers(path: str, values: Iterable[Mapping[str, Any]]) -> set[float]:
    """Return the numbers of a sweep among the values of a field."""
    found = (setting[path] for setting in values)
    return {
        value for value in found if isinstance(value, int | float) and not isinstance(value, bool)
    }
