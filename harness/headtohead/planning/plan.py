"""The plan of an experiment: variants, runs and run states. ``planner.make_plan`` creates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headtohead.config.entries import entries_of, plugins_of
from headtohead.config.labels import Scalar, text
from headtohead.config.loading import LoadedExperiment
from headtohead.config.project import in_project
from headtohead.config.versions import versions
from headtohead.data import PreparedData
from headtohead.data.reading import file_sha256
from headtohead.errors import HeadToHeadError, nearest
from headtohead.planning.costs import TRAINING
from headtohead.planning.design import Design
from headtohead.planning.metrics import reported_metrics
from headtohead.planning.power import Power
from headtohead.plugins.registry import Registered, Registry, current
from headtohead.plugins.sources import name_in_project, source_name
from headtohead.schema.run_config import ModelConfig, RunConfig, TrainConfig, changed
from headtohead.storage import states
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.existing import run_directories
from headtohead.storage.experiment import (
    EntryRecord,
    ExperimentDirectory,
    ExperimentRecord,
    LooksRecord,
    MarginRecord,
    PlannedRunRecord,
    ProbeSentence,
    ReportedMetrics,
    TunedVariant,
    TuningRecord,
    VariantRecord,
)
from headtohead.storage.record import read_record
from headtohead.storage.run import RUN, PluginRecord, ReadRecord, RunRecord, read_status
from headtohead.storage.run_directory import now
from headtohead_judge.looks import Looks

MISSING = "MISSING"
"""State of a planned run without a directory."""

TUNING_METRIC = "valid/loss"
"""Metric that chooses a setting; lower is better."""


class PlannedRun(PlannedRunRecord):
    """A run of the plan with the state of its directory.

    ``stale`` lists the code and plugin versions that changed after a finished run was recorded, ``changed_plugins``
    only the plugins, also of incomplete runs. ``experiment.json`` holds the fields of `PlannedRunRecord` only.
    """

    state: str = MISSING
    reason: str | None = None
    stale: tuple[str, ...] = ()
    changed_plugins: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the run has a result; a diverged run has a result."""
        return self.state in states.RESULTS


@dataclass(frozen=True, eq=False)
class PlannedVariant:
    """A variant: its entry in ``experiment.json``, and what determines its runs."""

    record: VariantRecord
    identity: Mapping[str, Any]
    steps_per_epoch: int

    @property
    def config(self) -> RunConfig:
        """The configuration with the matched ``d_ff``."""
        return self.record.config

    @property
    def slug(self) -> str:
        """The variant's unique name, usable as a file name."""
        return self.record.slug

    @property
    def data_hash(self) -> str:
        """The hash of the prepared data."""
        return str(self.identity["data_hash"])

    def training_flops(self, data: PreparedData) -> float:
        """Return the FLOPs of training one run of the variant, from those of a target token in a forward pass."""
        epochs, (_, lengths) = self.record.steps / self.steps_per_epoch, data.train_lengths
        inputs = len(lengths) * max(1.0, float(lengths.mean()) - self.config.quirks.shift_targets)
        return TRAINING * self.record.counts.flops_per_token * epochs * inputs


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of the remaining runs on this machine, and the basis of the estimate.

    ``most_seconds`` includes the runs of all later looks.
    """

    seconds: float
    basis: str
    most_seconds: float


@dataclass(frozen=True)
class TuningSetting:
    """A setting of the sweep: its value by field, and the fields to change by section."""

    values: Mapping[str, Scalar]
    changes: Mapping[str, Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The setting as a short label."""
        return ", ".join(
            f"{path.rpartition('.')[2]} {text(value)}" for path, value in self.values.items()
        )

    @property
    def slug(self) -> str:
        """The setting as part of a slug."""
        return "-".join(
            f"{path.rpartition('.')[2]}-{text(value)}" for path, value in self.values.items()
        )

    @property
    def is_valid(self) -> bool:
        """Whether the fields can have these values."""
        try:
            ModelConfig.model_validate(self.changes.get("model", {}))
            TrainConfig.model_validate(self.changes.get("train", {}))
        except ValidationError:
            return False
        return True

    def apply(self, config: RunConfig) -> RunConfig:
        """Return the configuration with this setting."""
        return changed(config, **self.changes)


@dataclass(frozen=True)
class Tuning:
    """The sweep of ``tune``: its settings by variant, its plan, and the choices once every setting has a trial."""

    settings: Mapping[str, tuple[TuningSetting, ...]]
    plan: Plan
    variants: Mapping[str, TunedVariant]
    epochs: float | None = None
    """Epochs of the sweep if ``tune_epochs`` sets them."""

    @property
    def coarse(self) -> str:
        """Why the sweep may miss the best setting; empty with four values, two seeds and full length."""
        reasons = []
        for path in next(iter(self.settings.values()))[0].values:
            tried = [{setting.values[path] for setting in own} for own in self.settings.values()]
            least, most = (choose(map(len, tried)) for choose in (min, max))
            if least < 4 and any(isinstance(value, float) for value in tried[0]):
                reasons.append(f"{least}{f' to {most}' * (most > least)} values of {path}")
        reasons += ["1 seed"] * (len(self.plan.design.seeds) == 1)
        reasons += [f"train.epochs {text(self.epochs)} only"] * (self.epochs is not None)
        return ", ".join(reasons)

    @property
    def is_chosen(self) -> bool:
        """Whether the settings of all variants are chosen, from runs or from the trials of the recorded plan."""
        return bool(self.variants)

    @property
    def without_result(self) -> list[PlannedRun]:
        """The runs of the sweep without a result."""
        return [run for run in self.plan.runs if not run.is_done]

    @property
    def is_done(self) -> bool:
        """Whether the settings of all variants are chosen, and every run of the sweep has a result."""
        return self.is_chosen and not self.without_result

    def chosen(self, slug: str) -> TuningSetting:
        """Return the best setting of a variant."""
        return next(
            setting
            for setting in self.settings[slug]
            if setting.values == self.variants[slug].chosen
        )

    def apply(self, design: Design) -> Design:
        """Return the design with the chosen settings; unchanged before they are chosen."""
        if not self.is_chosen:
            return design
        variants = tuple(
            replace(variant, config=self.chosen(variant.slug).apply(variant.config))
            for variant in design.variants
        )
        return replace(design, variants=variants)

    @property
    def record(self) -> TuningRecord:
        """The sweep's entry in ``experiment.json``."""
        return TuningRecord(
            experiment=self.plan.name,
            fields=tuple(next(iter(self.settings.values()))[0].values),
            metric=TUNING_METRIC,
            seeds=self.plan.design.seeds,
            epochs=self.epochs,
            coarse=self.coarse,
            variants=self.variants,
        )


@dataclass(frozen=True)
class Plan:
    """An experiment resolved against its data and the existing runs.

    ``prepared`` holds the prepared data by data hash, ``data`` that of the baseline.
    ``only`` holds the slugs of the variants that the next call trains; None for all.
    With sequential seeds, the plan is that of one of the ``looks``.
    """

    loaded: LoadedExperiment
    design: Design
    variants: tuple[PlannedVariant, ...]
    runs: tuple[PlannedRun, ...]
    runs_root: Path
    data: PreparedData
    estimate: Estimate
    probes: tuple[ProbeSentence, ...]
    contrasts: tuple[ContrastRecord, ...]
    power: tuple[Power, ...] = ()
    notes: tuple[str, ...] = ()
    prepared: Mapping[str, PreparedData] = field(default_factory=dict)
    tuning: Tuning | None = None
    only: frozenset[str] | None = None
    looks: Looks | None = None

    @property
    def name(self) -> str:
        """The experiment's name, also the name of its folder."""
        return self.loaded.name

    @property
    def directory(self) -> Path:
        """The folder of the experiment's runs."""
        return self.runs_root / self.name

    @cached_property
    def by_slug(self) -> Mapping[str, PlannedVariant]:
        """The variants by slug."""
        return {variant.slug: variant for variant in self.variants}

    @cached_property
    def _by_variant(self) -> Mapping[str, list[PlannedRun]]:
        runs: dict[str, list[PlannedRun]] = {}
        for run in self.runs:
            runs.setdefault(run.variant, []).append(run)
        return runs

    def runs_of(self, slug: str) -> list[PlannedRun]:
        """Return the runs of a variant, or those of the variant that it is equal to."""
        return self._by_variant[self.by_slug[slug].record.equal_to or slug]

    def limited_to(self, names: Sequence[str]) -> Plan:
        """Return the plan with only these variants to train, or unchanged without names.

        Raises:
            HeadToHeadError: For a name that is no variant's slug, with the nearest slug, and for an excluded variant.
        """
        excluded = {variant.slug: variant.reason for variant in self.design.excluded}
        for name in names:
            if name in excluded:
                raise HeadToHeadError(f"--only {name}: this variant is excluded: {excluded[name]}")
            if name not in self.by_slug:
                raise HeadToHeadError(
                    f"--only {name}: unknown variant '{name}'{nearest(name, self.by_slug)}"
                )
        trained = {run.variant for name in names for run in self.runs_of(name)}
        return replace(self, only=frozenset(trained)) if names else self

    @property
    def selected(self) -> list[PlannedRun]:
        """The runs of the variants to which the plan is limited."""
        return [run for run in self.runs if self.only is None or run.variant in self.only]

    @property
    def remaining(self) -> list[PlannedRun]:
        """Runs that the next call trains: without a result, not failed and not running."""
        idle = states.FINAL | states.ACTIVE
        return [run for run in self.selected if run.state not in idle]

    def variant_of(self, run: PlannedRun) -> PlannedVariant:
        """Return the variant of a run."""
        return self.by_slug[run.variant]

    def data_of(self, run: PlannedRun) -> PreparedData:
        """Return the prepared data of a run."""
        return self.prepared[self.variant_of(run).data_hash]

    def record(self, command: str = "") -> ExperimentRecord:
        """Return the content of ``experiment.json``.

        Args:
            command: The shell command that runs the experiment; default: ``h2h run`` with the options of this call.
        """
        file, path = self.loaded.file, in_project(self.loaded.path, self.runs_root)
        return ExperimentRecord(
            name=self.name,
            question=file.question,
            description=file.description,
            file=path,
            text=self.loaded.text,
            command=command or " ".join(["h2h run", path, *self.loaded.run_options]),
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            axes=self.design.axes,
            baseline=self.design.baseline,
            seeds=self.design.seeds,
            variants=tuple(variant.record for variant in self.variants),
            tuning=self.tuning.record if self.tuning else None,
            excluded=self.design.excluded,
            contrasts=self.contrasts,
            match=file.match,
            entries=self._compared_entries(),
            metrics=self.metrics,
            margins=self._margins(),
            looks=self._looks(),
            probes=self.probes,
            notes=self.notes,
            data=self.data.record,
            data_files=self._data_files(),
            runs=self.runs,
            versions=versions(self.loaded.path),
        )

    def _data_files(self) -> dict[str, str]:
        """Return the sha256 of each data file of the variants."""
        names = sorted({name for variant in self.variants for name in variant.config.data.files})
        files = [path for name in names if (path := Path(name).expanduser()).is_file()]
        return {in_project(path, self.runs_root): file_sha256(path) for path in files}

    def _compared_entries(self) -> tuple[EntryRecord, ...]:
        """Return the plugin entries of the roles in which the variants differ, with the entries that these combine."""
        find = current().find
        used = [
            [
                (family, (chosen.name, *find(family, chosen.name).entry.depends_on(chosen.options)))
                for family, chosen in entries_of(variant.config)
            ]
            for variant in self.variants
        ]
        by_role = list(zip(*used, strict=True)) if len({*map(len, used)}) == 1 else used
        differing = [entry for entries in by_role if len({*entries}) > 1 for entry in entries]
        return tuple(
            EntryRecord(family=family, name=name, summary=find(family, name).entry.summary())
            for family, name in dict.fromkeys(
                (family, name) for family, names in differing for name in names
            )
        )

    @cached_property
    def metrics(self) -> ReportedMetrics:
        """The metrics of the report."""
        return reported_metrics(self.loaded, self.design.variant(self.design.baseline).config)

    def _margins(self) -> dict[str, MarginRecord]:
        """Return the margins by metric; a margin that the stored record has keeps its date."""
        margin = self.loaded.file.margin
        if margin is None:
            return {}
        values = margin if isinstance(margin, dict) else {self.metrics.primary: margin}
        stored = self._stored.margins if self._stored else {}
        kept = {
            metric: stored[metric]
            for metric, value in values.items()
            if metric in stored and stored[metric].value == value
        }
        new = values.keys() - kept.keys()
        late, date = bool(new) and self._has_results(), now()
        return {
            metric: kept.get(metric) or MarginRecord(value=value, since=date, late=late)
            for metric, value in values.items()
        }

    def _has_results(self) -> bool:
        """Return whether a run has a result, or an earlier run in the folder with a seed and the data of this plan."""
        if any(run.is_done for run in self.runs):
            return True
        for path in run_directories(self.directory):
            with suppress(HeadToHeadError):  # a damaged run
                record = read_record(RunRecord, path / RUN)
                is_same = (
                    record
                    and record.seed in self.design.seeds
                    and record.data["data_hash"] in self.prepared
                )
                if is_same and read_status(path).state in states.RESULTS:
                    return True
        return False

    def _looks(self) -> LooksRecord | None:
        """Return the looks; equal looks of the stored record keep their date. None if there never were looks."""
        stored, current = self._stored.looks if self._stored else None, len(self.design.seeds)
        if self.looks is None:
            is_kept = stored is None or not stored.seeds
            return stored if is_kept else LooksRecord(seeds=(), taken=(), since=now())
        if stored is None or stored.seeds != self.looks.seeds:
            return LooksRecord(seeds=self.looks.seeds, taken=(current,), since=now())
        before = [seeds for seeds in stored.taken if seeds < current]
        return stored.model_copy(update={"taken": (*before, current)})

    @cached_property
    def _stored(self) -> ExperimentRecord | None:
        """The stored record; None without a record, or if it is damaged."""
        with suppress(HeadToHeadError):
            return ExperimentDirectory.read(self.directory).record
        return None

    def run_record(self, run: PlannedRun) -> RunRecord:
        """Return the content of a run's ``run.json`` before its stack is assigned."""
        variant = self.variant_of(run)
        return RunRecord(
            run_hash=run.run_hash,
            experiment=self.name,
            variant=run.variant,
            seed=run.seed,
            plugins=plugin_records(variant.config, current(), self.runs_root.resolve().parent),
            data=self.data_of(run).record,
            versions=versions(self.loaded.path),
            created=now(),
            **variant.record.resolved,
        )

    def __repr__(self) -> str:
        return f"Plan({self.name}: {len(self.variants)} variants, {len(self.runs)} runs, {len(self.remaining)} to run)"

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import plan_html  # loads matplotlib

        return plan_html(self)


def plugin_records(
    config: RunConfig, registry: Registry, project: Path
) -> tuple[PluginRecord, ...]:
    """Return the records of the plugin entries that a configuration uses, with sources relative to the project."""
    return tuple(_plugin_record(entry, project) for entry in plugins_of(config))


def _plugin_record(entry: Registered, project: Path) -> PluginRecord:
    reads = []
    for read in entry.reads:
        # The folder without links: a link may lead to another file later.
        path = read.path and name_in_project(read.path.parent.resolve() / read.path.name, project)
        reads.append(ReadRecord(name=read.name, path=path, sha256=read.sha256))
    return PluginRecord(
        family=entry.family,
        name=entry.name,
        module=entry.module,
        distribution=entry.distribution,
        version=entry.version,
        source_sha256=entry.source_sha256,
        source=source_name(entry.entry, project),
        reads=tuple(reads),
    )


def count_are(number: int, noun: str) -> str:
    """Return the subject and verb of a sentence: ``1 run is``, ``2 runs are``."""
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"
