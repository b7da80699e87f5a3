"""The plan of an experiment: variants, runs and run states. `Planner` creates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from headtohead.config.labels import text
from headtohead.config.loading import LoadedExperiment
from headtohead.config.phrases import axis_name
from headtohead.data import PreparedData
from headtohead.errors import HeadToHeadError, nearest
from headtohead.planning.costs import PlannedVariant
from headtohead.planning.design import Design
from headtohead.planning.lookup import FinishedRun, PlannedRun
from headtohead.planning.metrics import declared_metrics, reported_metrics
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.planning.tuning.sweep import swept_slug
from headtohead.storage import states
from headtohead.storage.contrasts import ContrastRecord
from headtohead.storage.experiment import ProbeSentence, ReportedMetrics
from headtohead.storage.tuning import TUNING_METRIC, TunedVariant, TuningRecord, number_of
from headtohead_judge.looks import Looks

ENOUGH_VALUES = 4
"""Number of values of a field from which a sweep is not called coarse."""


class Stage(StrEnum):
    """What tuning runs are for."""

    VALUES = "values"
    """Each variant with each setting of the file."""

    FURTHER_VALUES = "further values"
    """Values beyond those of the file, because the best one may be outside."""

    FURTHER_SEEDS = "further seeds"
    """Further seeds of the two best settings of a variant."""


@dataclass(frozen=True)
class Tuning:
    """The sweep of ``tune``: its settings by variant, its plan, and the choices once every setting has its results.

    Attributes:
        listed: The settings of the experiment file.
        settings: The settings by variant, with further ones beyond those of the file.
        plan: The plan of the sweep.
        variants: The chosen setting of each variant; empty before all are chosen.
        epochs: Epochs of the tuning runs if they have another length than those of the experiment.
    """

    listed: tuple[TuningSetting, ...]
    settings: Mapping[str, tuple[TuningSetting, ...]]
    plan: Plan
    variants: Mapping[str, TunedVariant]
    epochs: float | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the sweep sets, which are the same for all variants."""
        return tuple(self.listed[0].values)

    @property
    def stage(self) -> Stage:
        """What the tuning runs without a result are for; several stages count as the first of them.

        It is `Stage.FURTHER_SEEDS` if every run has a result.
        """
        listed = set[str]()
        for slug in self.settings:
            listed.update(swept_slug(slug, setting) for setting in self.listed)
        of_sweep = [run for run in self.without_result if run.seed in self.plan.design.seeds]
        if any(run.variant in listed for run in of_sweep):
            return Stage.VALUES
        return Stage.FURTHER_VALUES if of_sweep else Stage.FURTHER_SEEDS

    @property
    def coarse(self) -> str:
        """Why the sweep may miss the best setting, as a list of reasons; empty with enough values.

        Enough are four values of a field with fractional values. Fields of whole numbers, texts or booleans may have
        fewer values.
        """
        reasons = []
        for path in self.fields:
            values_by_variant = []
            for settings in self.settings.values():
                values_by_variant.append({setting.values[path] for setting in settings})
            num_values = [len(values) for values in values_by_variant]
            fewest = min(num_values)
            most = max(num_values)
            is_continuous = any(isinstance(value, float) for value in values_by_variant[0])
            if fewest < ENOUGH_VALUES and is_continuous:
                number = str(fewest) if fewest == most else f"{fewest} to {most}"
                name = axis_name(path.split("."))
                reasons.append(f"{number} values of the {name}")
        return ", ".join(reasons)

    @property
    def weaknesses(self) -> str:
        """Everything that may make the sweep miss the best setting, with a single seed and another length of runs."""
        reasons = [self.coarse] if self.coarse else []
        if len(self.plan.design.seeds) == 1:
            reasons.append("1 seed")
        if self.epochs is not None:
            reasons.append(f"train.epochs {text(self.epochs)} only")
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
        """Return the chosen setting of a variant, which can be between the settings of the sweep.

        Raises:
            KeyError: If no setting of the variant is chosen; see ``is_chosen``.
        """
        values = self.variants[slug].chosen
        for setting in self.settings[slug]:
            if setting.values == values:
                return setting
        (path,) = self.fields  # only a single number has a value between those of the sweep
        return self.settings[slug][0].with_value(path, number_of(values, path))

    def apply(self, design: Design) -> Design:
        """Return the design with the chosen settings; unchanged before they are chosen."""
        if not self.is_chosen:
            return design
        variants = []
        for variant in design.variants:
            config = self.chosen(variant.slug).apply(variant.config)
            variants.append(replace(variant, config=config))
        return replace(design, variants=tuple(variants))

    @property
    def record(self) -> TuningRecord:
        """The sweep's entry in ``experiment.json``."""
        return TuningRecord(
            experiment=self.plan.name,
            fields=self.fields,
            metric=TUNING_METRIC,
            seeds=self.plan.design.seeds,
            epochs=self.epochs,
            coarse=self.coarse,
            variants=self.variants,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment resolved against its data and the existing runs.

    Attributes:
        loaded: The experiment file.
        design: The design after matching; its seeds are those of the planned look.
        variants: The variants with their costs.
        runs: The runs with the states of their directories.
        finished: The DONE runs with their metrics.
        runs_root: The folder with a folder per experiment.
        data: The prepared data of the baseline.
        prepared: All prepared data by data hash.
        probes: Sentences whose attention maps every run records.
        contrasts: The contrasts to test.
        matching_notes: Notes on the result of ``match``.
        tuning: The sweep of ``tune``.
        looks: The looks of sequential seeds; None with a fixed number of seeds.
        only: Slugs of the variants that are trained; None for all.
    """

    loaded: LoadedExperiment
    design: Design
    variants: tuple[PlannedVariant, ...]
    runs: tuple[PlannedRun, ...]
    finished: tuple[FinishedRun, ...]
    runs_root: Path
    data: PreparedData
    prepared: Mapping[str, PreparedData]
    probes: tuple[ProbeSentence, ...]
    contrasts: tuple[ContrastRecord, ...]
    matching_notes: tuple[str, ...] = ()
    tuning: Tuning | None = None
    looks: Looks | None = None
    only: frozenset[str] | None = None

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
    def metrics(self) -> ReportedMetrics:
        """The metrics of the report."""
        reported = reported_metrics(self.loaded, self.by_slug[self.design.baseline].config)
        datasets = [variant.config.data.dataset for variant in self.variants]
        return reported.model_copy(update={"declared": declared_metrics(datasets)})

    @property
    def margins(self) -> Mapping[str, float]:
        """The margins of the file by metric; a single margin is that of the primary metric."""
        margin = self.loaded.file.margin
        if margin is None:
            return {}
        return margin if isinstance(margin, dict) else {self.metrics.primary: margin}

    @property
    def trained_variants(self) -> list[PlannedVariant]:
        """The variants with runs of their own: those that equal no other variant by construction."""
        return [variant for variant in self.variants if variant.record.equal_to is None]

    @cached_property
    def _by_variant(self) -> Mapping[str, list[PlannedRun]]:
        runs: dict[str, list[PlannedRun]] = {}
        for run in self.runs:
            runs.setdefault(run.variant, []).append(run)
        return runs

    def runs_of(self, slug: str) -> list[PlannedRun]:
        """Return the runs of a variant, or of the variant that it equals; an unknown slug is a `KeyError`."""
        return self._by_variant[self.by_slug[slug].record.equal_to or slug]

    def limited_to(self, names: Sequence[str]) -> Plan:
        """Return a plan of which only these variants train; without names, this plan.

        All runs stay in the plan; `selected` and `remaining` have only the runs of these variants. If a variant equals
        another variant by construction, the runs of the other variant are selected.

        Args:
            names: Slugs of variants.

        Raises:
            HeadToHeadError: For an excluded variant, and for a name that is no variant's slug. The message has the
                nearest slug, or all slugs if none is near.
        """
        if not names:
            return self
        excluded = {variant.slug: variant.reason for variant in self.design.excluded}
        trained = set()
        for name in names:
            if name in excluded:
                raise HeadToHeadError(f"--only {name}: this variant is excluded: {excluded[name]}")
            if name not in self.by_slug:
                hint = nearest(name, self.by_slug)
                raise HeadToHeadError(f"--only {name}: unknown variant '{name}'{hint}")
            trained |= {run.variant for run in self.runs_of(name)}
        return replace(self, only=frozenset(trained))

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

    def __repr__(self) -> str:
        return f"Plan({self.name}: {len(self.variants)} variants, {len(self.runs)} runs, {len(self.remaining)} to run)"

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import plan_html  # loads matplotlib

        return plan_html(self)
