"""The same small sweep for every variant, before the experiment itself: fair settings for all.

The sweep is an experiment of its own, ``<name>-tuning``: every variant with every setting, on seeds
that no experiment can use, so that what is chosen is chosen by other runs than those that are
compared. Its runs differ in what members of a stack may differ in, and train stacked. A variant
gets the setting with the lowest mean validation loss.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headtohead.config.labels import Scalar, text
from headtohead.config.loading import MAX_SEED, SWEEP_LABEL, LoadedExperiment
from headtohead.errors import HeadToHeadError
from headtohead.model.members import OF_MEMBERS
from headtohead.planning.design import Design, Variant, expand
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import SHORTHANDS
from headtohead.schema.experiment_file import DesignBlock, Metrics
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.paths import run_folder
from headtohead.storage.records import TrialRecord, TunedVariant, TuningRecord
from headtohead.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from headtohead.planning.plan import Plan

METRIC = "valid/loss"
"""What a setting is chosen by; lower is better."""


@dataclass(frozen=True)
class Setting:
    """One point of the sweep: its value by field, and what it changes in a configuration."""

    values: Mapping[str, Scalar]
    changes: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The setting in words, short."""
        return ", ".join(f"{_last(path)} {text(value)}" for path, value in self.values.items())

    @property
    def slug(self) -> str:
        """The setting in the letters of a file name."""
        return "-".join(f"{_last(path)}-{text(value)}" for path, value in self.values.items())

    def of(self, config: RunConfig) -> RunConfig:
        """Return a configuration with this setting."""
        sections = {
            section: getattr(config, section).model_copy(update=dict(fields))
            for section, fields in self.changes.items()
        }
        return config.model_copy(update=sections)


@dataclass(frozen=True)
class Tried:
    """What one setting gave one variant: mean and spread of the loss over the sweep's seeds.

    A run that diverged makes the mean infinite.
    """

    setting: Setting
    mean: float
    sd: float | None


@dataclass(frozen=True)
class Tuning:
    """The sweep: its settings, its plan, and what came of it once every run has a result."""

    settings: tuple[Setting, ...]
    plan: Plan
    tried: Mapping[str, tuple[Tried, ...]]

    @property
    def is_done(self) -> bool:
        """Whether every variant has its setting."""
        return bool(self.tried)

    @property
    def fields(self) -> list[str]:
        """The fields that are swept."""
        return list(self.settings[0].values)

    def chosen(self, slug: str) -> Setting:
        """Return the setting of a variant: the best, of equals the first."""
        return min(self.tried[slug], key=lambda one: one.mean).setting

    def apply(self, design: Design) -> Design:
        """Return the design with every variant at its setting; as it is until all are known."""
        if not self.is_done:
            return design
        variants = tuple(replace(one, config=self.chosen(one.slug).of(one.config)) for one in design.variants)
        return replace(design, variants=variants)

    def at_the_edge(self, slug: str) -> list[str]:
        """Return the fields whose chosen value is the least or the greatest that was tried."""
        chosen, found = self.chosen(slug), []
        for path in self.fields:
            values = [one.values[path] for one in self.settings]
            numbers = [one for one in values if isinstance(one, int | float)]
            if len(set(numbers)) > 2 and chosen.values[path] in (min(numbers), max(numbers)):
                found.append(path)
        return found

    @property
    def record(self) -> TuningRecord:
        """The sweep as ``experiment.json`` holds it."""
        return TuningRecord(
            experiment=self.plan.name,
            fields=tuple(self.fields),
            metric=METRIC,
            seeds=self.plan.design.seeds,
            variants={slug: self._tuned(slug, found) for slug, found in self.tried.items()},
        )

    def _tuned(self, slug: str, found: Sequence[Tried]) -> TunedVariant:
        return TunedVariant(
            chosen=self.chosen(slug).values,
            at_the_edge=tuple(self.at_the_edge(slug)),
            tried=tuple(
                TrialRecord(
                    values=tried.setting.values, mean=tried.mean if math.isfinite(tried.mean) else None, sd=tried.sd
                )
                for tried in found
            ),
        )


def settings_of(loaded: LoadedExperiment, design: Design, registry: Registry) -> list[Setting]:
    """Return the settings that the file asks for.

    Raises:
        HeadToHeadError: For a field that cannot be swept, or a value that is none, with its place.
    """
    tune = loaded.file.tune
    assert tune is not None
    location = loaded.location("tune")
    if design.path is not None:
        raise location.error("a path changes settings itself; tune goes with axes")
    allowed = ["model.dropout", *(f"{section}.{name}" for section, names in OF_MEMBERS.items() for name in names)]
    for path in tune:
        if path not in allowed:
            raise location.child(path).error(f"'{path}' cannot be tuned; fields that can: {', '.join(sorted(allowed))}")
        if path in design.axes:
            raise location.child(path).error(f"'{path}' is an axis of the design; it is compared")
    if not tune:
        raise location.error("a sweep needs at least one field, such as train.lr: [0.001, 0.003]")
    # Laid over the baseline as axes are: values are checked at their places in the file.
    block = DesignBlock(product=dict(tune))
    file = loaded.file.model_copy(
        update={"design": [block], "tune": None, "published": None, "exclude": [], "match": "none"}
    )
    lines = {
        ("design", 0, "product", *path[1:]): line for path, line in loaded.source.lines.items() if path[:1] == ("tune",)
    }
    try:
        alone = expand(replace(loaded, file=file, source=replace(loaded.source, lines=lines)), registry)
    except HeadToHeadError as error:
        raise HeadToHeadError(str(error).replace("design[0].product", "tune")) from error
    baseline = alone.variant(alone.baseline)
    variants = {one.slug: one for one in alone.variants}
    (factorial,) = alone.factorials
    # The cells are in the order of the file; equal values, however written, share a slug.
    return [
        Setting(
            {path: variants[slug].axes[path] for path in tune}, _changes(variants[slug].config, baseline.config, tune)
        )
        for slug in dict.fromkeys(factorial.cells.values())
    ]


def _changes(config: RunConfig, baseline: RunConfig, tune: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Return the fields that a setting fixes: those that are swept, and what follows from them."""
    changes: dict[str, dict[str, Any]] = {}
    given = {name for path in tune for name in SHORTHANDS.get(tuple(path.split(".")), ())}
    for section, names in OF_MEMBERS.items():
        for name in sorted(names):
            value = getattr(getattr(config, section), name)
            moved = value != getattr(getattr(baseline, section), name)
            if moved or f"{section}.{name}" in tune or name in given:
                changes.setdefault(section, {})[name] = value
    return changes


def sweep(loaded: LoadedExperiment, design: Design, settings: Sequence[Setting]) -> tuple[LoadedExperiment, Design]:
    """Return the experiment that tries every setting with every variant."""
    file = loaded.file.model_copy(
        update={
            "question": f"Which {' and '.join(settings[0].values)} suits each variant of {loaded.name}?",
            "tune": None,
            "published": None,
            "metrics": Metrics(primary=METRIC, report=()),
        }
    )
    # The same seeds whatever the experiment's are: further seeds do not change the sweep.
    seeds = tuple(MAX_SEED + number for number in range(1, loaded.file.tune_seeds + 1))
    variants = tuple(
        Variant(
            f"{one.slug}-{setting.slug}",
            f"{one.title} · {setting.name}",
            {**one.axes, **setting.values},
            setting.of(one.config),
            one.match,
        )
        for one in design.variants
        for setting in settings
    )
    return (
        replace(loaded, name=f"{loaded.name}-{SWEEP_LABEL}", file=file, seeds=seeds),
        Design(
            axes=(*design.axes, *settings[0].values),
            variants=variants,
            baseline=f"{design.baseline}-{settings[0].slug}",
            excluded=(),
            seeds=seeds,
        ),
    )


def find_tried(design: Design, settings: Sequence[Setting], plan: Plan) -> dict[str, tuple[Tried, ...]]:
    """Return what the sweep gave, by variant; nothing while a run of it has no result."""
    if any(run.state not in states.RESULTS for run in plan.runs):
        return {}
    losses: dict[str, list[float]] = {}
    for run in plan.runs:
        path = run_folder(plan.directory, run.directory, run.reused_from)
        results = RunDirectory(path).results if run.state == states.DONE else None
        loss = results.metrics.get(METRIC) if results else None
        losses.setdefault(run.variant, []).append(math.inf if loss is None else float(loss))
    found = {}
    for one in design.variants:
        tried = []
        for setting in settings:
            own = plan.by_slug[f"{one.slug}-{setting.slug}"]
            values = losses[own.equal.to if own.equal else own.slug]
            finite = len(values) > 1 and all(map(math.isfinite, values))
            tried.append(Tried(setting, statistics.fmean(values), statistics.stdev(values) if finite else None))
        found[one.slug] = tuple(tried)
    return found


def _last(path: str) -> str:
    return path.rpartition(".")[2]
