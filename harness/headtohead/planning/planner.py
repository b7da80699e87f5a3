"""Create the plan of an experiment by passes: expand, prepare data, exclude, match, cost, look up runs.

Planning writes only to the cache of prepared data. Stacks are arranged when the machine is known (`stacking`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from headtohead import data
from headtohead.config.loading import LoadedExperiment
from headtohead.planning.costs import Costs, cost_variants, refuse_oversized
from headtohead.planning.datasets import PreparedDataSets
from headtohead.planning.design import Design, expand
from headtohead.planning.equality import mark_equal_masks
from headtohead.planning.lengths import choose_probes
from headtohead.planning.lookup import look_up_runs
from headtohead.planning.matching import match_variants
from headtohead.planning.metrics import reported_metrics
from headtohead.planning.plan import Plan, Tuning
from headtohead.planning.tuning.settings import TuningSetting, settings_of
from headtohead.planning.tuning.sweep import has_other_length, sweep
from headtohead.planning.tuning.trials import (
    choices_of,
    further_seeds_for,
    recorded_tuning,
    tried_settings,
    tuned_variants,
)
from headtohead.planning.tuning.widening import MAX_WIDENINGS, widened
from headtohead.storage.existing import ExistingRuns
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.tuning import TrialRecord, TuningRecord
from headtohead_judge.looks import Looks

log = logging.getLogger(__name__)


def make_plan(
    loaded: LoadedExperiment,
    runs_root: Path,
    cache: Path | None = None,
    *,
    fresh: bool = False,
    look: int | None = None,
) -> Plan:
    """Return the plan of a validated experiment file at the present state of its runs.

    Args:
        loaded: The experiment file.
        runs_root: Folder with one folder per experiment; it need not exist.
        cache: Folder of prepared data; default: H2H_CACHE or ~/.cache/headtohead.
        fresh: Ignore existing runs.
        look: With sequential seeds, the number of seeds of the planned look; default: the look that the study is at.

    Raises:
        HeadToHeadError: If the design, or a field of ``match`` or ``tune``, is invalid; if the baseline cannot run; if
            a model does not fit into memory; if the data or the runs folder cannot be read; if a run directory is
            damaged or a symbolic link; or if a plugin fails or is faulty.
    """
    existing = None if fresh else ExistingRuns(runs_root)
    return Planner(loaded, runs_root, cache).plan(existing, look)


class Planner:
    """Plans an experiment file, also several times while its runs change.

    The design, prepared data and the costs of configurations do not depend on runs; they are computed once. Data are
    prepared, and written to the cache, at construction.

    Args:
        loaded: The experiment file.
        runs_root: Folder with one folder per experiment; it need not exist.
        cache: Folder of prepared data; default: H2H_CACHE or ~/.cache/headtohead.

    Raises:
        HeadToHeadError: If the design is invalid, the baseline cannot run, the data cannot be read, or a plugin is
            faulty.
    """

    def __init__(
        self, loaded: LoadedExperiment, runs_root: Path, cache: Path | None = None
    ) -> None:
        self.loaded = loaded
        self.runs_root = runs_root
        self.datasets = PreparedDataSets(loaded, cache or data.cache_root())
        self.costs = Costs(self.datasets)
        self.design = expand(loaded, self.datasets)

    def plan(self, existing: ExistingRuns | None, look: int | None = None) -> Plan:
        """Return the plan of the experiment at the present state of its runs.

        With ``tune``, the plan contains the sweep as `Plan.tuning`. Its variants have the settings that the sweep
        chose once every variant has a chosen setting; before, they have those of the file.

        Args:
            existing: The runs that the plan may use; None ignores all.
            look: With sequential seeds, the number of seeds of the planned look; default: the look that the study
                is at. Ignored with a fixed number of seeds.

        Raises:
            HeadToHeadError: If a field of ``match`` or ``tune`` is invalid; if a model does not fit into memory; if a
                run directory is damaged or a symbolic link; or if a plugin fails or is faulty.
        """
        design = self.design
        looks = None
        sequential = self.loaded.sequential
        if sequential is not None:
            looks = Looks.planned(sequential.looks, sequential.at_most)
            num_seeds = look
            if num_seeds is None:
                num_seeds = self._present_look(looks, existing)
            design = replace(design, seeds=self.loaded.seeds[:num_seeds])
        if self.loaded.file.tune is None:
            return self._run_passes(self.loaded, design, existing, looks)
        tuning = self._tune(design, existing)
        tuned_design = tuning.apply(design)
        return self._run_passes(self.loaded, tuned_design, existing, looks, tuning)

    def _present_look(self, looks: Looks, existing: ExistingRuns | None) -> int:
        """Return the number of seeds of the first look with all seeds of the experiment's record.

        If ``existing`` is None, or if the record is missing or damaged, it is the number of the first look. If the
        record has more seeds than any look, it is the number of the last look.
        """
        if existing is None:
            return looks.seeds[0]
        record = ExperimentDirectory.find_record(self.runs_root / self.loaded.name)
        if record is None:
            return looks.seeds[0]
        return looks.next(len(record.seeds) - 1) or looks.seeds[-1]

    def _tune(self, design: Design, existing: ExistingRuns | None) -> Tuning:
        """Plan the sweep as far as its results lead, and choose the settings if every variant has a choice.

        A variant whose settings all have results and whose best value may be outside gets a further value, and the
        sweep is planned again, at most ``MAX_WIDENINGS`` times. Then the candidates of each choice get further seeds,
        and the sweep is planned again. It ends when nothing is added. `Tuning.variants` is empty as long as a variant
        has no choice.

        Raises:
            HeadToHeadError: If a field of ``match`` or ``tune`` is invalid; if a model does not fit into memory; if a
                run directory of the sweep is damaged or a symbolic link; or if a plugin fails or is faulty.
        """
        epochs = self.loaded.file.tune_epochs
        if not has_other_length(design, epochs):
            epochs = None
        recorded = None
        if existing is not None:
            recorded = recorded_tuning(self.runs_root / self.loaded.name)
        num_seeds = self.loaded.file.tune_seeds
        listed = settings_of(self.loaded, design)
        settings = {variant.slug: listed for variant in design.variants}
        further: set[str] = set()
        widenings = 0
        while True:
            plan, tried = self._sweep(design, settings, further, existing, recorded)
            choices = choices_of(tried, num_seeds)
            wider = dict(settings)
            for slug, trials in tried.items():
                wider[slug] = widened(settings[slug], trials, choices[slug])
            if wider != settings and widenings < MAX_WIDENINGS:
                settings = wider
                widenings += 1
                continue
            candidates = further_seeds_for(settings, choices)
            if candidates <= further:
                break
            further |= candidates
        variants = {}
        if len(tried) == len(settings):
            variants = tuned_variants(tried, num_seeds, recorded)
        return Tuning(listed, settings, plan, variants, epochs)

    def _sweep(
        self,
        design: Design,
        settings: Mapping[str, tuple[TuningSetting, ...]],
        further: Collection[str],
        existing: ExistingRuns | None,
        recorded: TuningRecord | None,
    ) -> tuple[Plan, dict[str, tuple[TrialRecord, ...]]]:
        """Return the plan of the sweep, and the trials of each variant with a trial for every setting.

        Args:
            design: The design of the experiment.
            settings: The settings by variant.
            further: The variants that get further seeds.
            existing: The runs that the plan may use; None ignores all.
            recorded: The sweep in the experiment's record, for settings whose runs were deleted; or None.

        Raises:
            HeadToHeadError: If a model does not fit into memory; if ``model.d_ff`` is matched and an axis; if a run
                directory is damaged or a symbolic link; if a metric of the file is invalid; or if a plugin fails.
        """
        plan = self._run_passes(*sweep(self.loaded, design, settings, further), existing)
        baseline = design.variant(design.baseline).config
        metrics = reported_metrics(self.loaded, baseline)
        names = (metrics.primary, *metrics.report)
        return plan, tried_settings(design, settings, plan, recorded, names)

    def _run_passes(
        self,
        loaded: LoadedExperiment,
        design: Design,
        existing: ExistingRuns | None,
        looks: Looks | None = None,
        tuning: Tuning | None = None,
    ) -> Plan:
        """Return the plan of an expanded design, that of the experiment or of its sweep.

        The passes are: refuse oversized models, match, cost, mark equal variants, look up runs.

        Args:
            loaded: The experiment file, or that of the sweep.
            design: The expanded design; the design of the plan has the matched variants.
            existing: The runs that the plan may use; None ignores all.
            looks: The looks of sequential seeds.
            tuning: The sweep; None for the sweep itself.

        Raises:
            HeadToHeadError: If a model cannot be built or does not fit into memory; if ``model.d_ff`` is matched and an
                axis; if a run directory is damaged or a symbolic link, or has another configuration than its hash; if a
                file that a plugin declares to read is missing; or if a plugin fails or is faulty.
        """
        for variant in design.variants:
            refuse_oversized(loaded, variant.slug, variant.config)
        matched, matching_notes = match_variants(loaded, design, self.costs)
        d_ff_asked = {variant.slug: variant.config.model.d_ff for variant in design.variants}
        design = replace(design, variants=matched)
        costed = cost_variants(loaded, matched, d_ff_asked, self.costs)
        variants = mark_equal_masks(costed, design.baseline, self.datasets)
        runs, finished = look_up_runs(loaded.name, variants, design.seeds_of, existing)
        baseline_data = self.datasets.of(design.variant(design.baseline).config)
        plan = Plan(
            loaded=loaded,
            design=design,
            variants=variants,
            runs=tuple(runs),
            finished=tuple(finished),
            runs_root=self.runs_root,
            data=baseline_data,
            prepared=self.datasets.by_hash,
            probes=choose_probes(loaded.file.probes, baseline_data),
            contrasts=tuple(design.contrasts()),
            matching_notes=tuple(matching_notes),
            tuning=tuning,
            looks=looks,
        )
        numbers = (len(variants), len(runs), len(plan.remaining))
        log.info("planned %s: %d variants, %d runs, %d to run", plan.name, *numbers)
        return plan
