"""Create the plan of an experiment: variants, existing runs, exclusions, stacks and costs.

Planning writes only to the cache of prepared data.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from headtohead import data
from headtohead.config.entries import plugins_of
from headtohead.config.identity import run_hashes, run_identity
from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import SourceLocation
from headtohead.config.versions import changed_plugins, drift
from headtohead.data import PreparedData
from headtohead.data.batches import make_batches
from headtohead.data.prepared import SIDES
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.planning.compatibility import find_incompatibility, find_unequal_lengths, longest_sequences
from headtohead.planning.costs import (
    DataSizes,
    Estimate,
    Finished,
    Work,
    count_model,
    estimate,
    least_parameters,
    refuse_oversized,
    seconds_of,
)
from headtohead.planning.design import Design, expand
from headtohead.planning.equality import equal_variants
from headtohead.planning.lengths import choose_probes, decoding_limit, length_notes
from headtohead.planning.matching import match_variants
from headtohead.planning.metrics import reported_metrics
from headtohead.planning.pitfalls import find_pitfalls, is_order_invariant, padding_has_no_effect
from headtohead.planning.plan import Plan, PlannedRun, PlannedVariant, Tuning, count_are
from headtohead.planning.power import Power, typical_sd
from headtohead.planning.schedule import evaluation_interval, planned_steps
from headtohead.planning.tuning import settings_of, sweep, tuned_variants, tuning_seeds
from headtohead.planning.variants import Variant
from headtohead.planning.warm_start import WarmStarts
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import PER_RUN, RunConfig
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.looks import Looks
from headtohead.storage import states
from headtohead.storage.contrasts import FactorContrast, Pairs
from headtohead.storage.existing import ExistingRun, ExistingRuns, refuse_difference
from headtohead.storage.experiment import ExperimentDirectory, ModelCounts, VariantRecord
from headtohead.storage.run import ExecutionRecord
from headtohead.storage.run_directory import RunDirectory

log = logging.getLogger(__name__)


def make_plan(
    loaded: LoadedExperiment,
    registry: Registry,
    runs_root: Path,
    cache: Path | None = None,
    *,
    fresh: bool = False,
    ignored: Collection[str] = (),
    reuse: bool = True,
    ready: Callable[[], object] = lambda: None,
    adapt: Callable[[Design], Design] = lambda design: design,
    look: int | None = None,
    initial_runs: Path | None = None,
) -> Plan:
    """Create the plan of a validated experiment file.

    Args:
        loaded: The experiment file.
        registry: The registry of this process; parameter counts look entries up in it.
        runs_root: Folder with one folder per experiment; it need not exist.
        cache: Folder of prepared data; default: H2H_CACHE or ~/.cache/headtohead.
        fresh: Ignore existing runs.
        ignored: Runs to ignore, as ``<experiment>/<directory>``.
        reuse: Whether runs of other experiments are reused.
        ready: Called after the design is expanded without an error, before costs are counted.
        adapt: Changes the expanded design.
        look: With sequential seeds, the number of seeds of the planned look; default: the look that the study is at.
        initial_runs: Folder in which ``init_from`` finds runs; default: ``runs_root``.

    Raises:
        HeadToHeadError: If the baseline cannot run, a model does not fit into memory, or the data or the runs folder
            cannot be read.
    """
    prepared = _Data(
        registry, cache or data.cache_root(), (*loaded.seeds, *tuning_seeds(loaded)), loaded.location("base", "data")
    )
    warm = WarmStarts(initial_runs or runs_root, prepared.draws)
    existing = None if fresh else ExistingRuns(runs_root, ignored, None if reuse else loaded.experiments)
    design = adapt(expand(loaded, registry, prepared.find_incompatibility))
    sequential = loaded.sequential
    looks = Looks.planned(sequential.looks, sequential.at_most) if sequential else None
    if looks is not None:
        current = look or _current_look(looks, None if fresh else runs_root / loaded.name)
        design = replace(design, seeds=loaded.seeds[:current])
    ready()
    tuning = None
    if loaded.file.tune is not None:
        settings = settings_of(loaded, design, registry)
        tried = _plan(*sweep(loaded, design, settings), prepared, runs_root, existing, warm)
        tuning = Tuning(tuple(settings), tried, tuned_variants(design, settings, tried), loaded.file.tune_epochs)
        design = tuning.apply(design)
    plan = replace(_plan(loaded, design, prepared, runs_root, existing, warm, looks), tuning=tuning)
    if tuning is None or not tuning.plan.remaining:
        return plan
    seconds = tuning.plan.estimate.seconds + plan.estimate.seconds
    return replace(plan, estimate=Estimate(seconds, f"{plan.estimate.basis}, with the tuning runs"))


def _current_look(looks: Looks, experiment: Path | None) -> int:
    """Return the number of seeds of the look that a study is at: the first look with all seeds of its record."""
    if experiment is not None:
        with suppress(HeadToHeadError):  # no record, or a damaged record
            recorded = len(ExperimentDirectory.read(experiment).record.seeds)
            return looks.next(recorded - 1) or looks.seeds[-1]
    return looks.seeds[0]


def _plan(
    loaded: LoadedExperiment,
    design: Design,
    prepared: _Data,
    runs_root: Path,
    all_existing: ExistingRuns | None,
    warm: WarmStarts,
    looks: Looks | None = None,
) -> Plan:
    registry = prepared.registry
    prepared = prepared.for_seeds(design.seeds)
    _check_draws(loaded, design, prepared)
    configured_d_ff = {variant.slug: variant.config.model.d_ff for variant in design.variants}
    match = next((variant.match for variant in design.variants if variant.match != "none"), None)
    if match and "model.d_ff" in design.axes:
        raise loaded.location("match").error(
            f"'{match}' widens model.d_ff, which is an axis of this design; set match: none"
        )
    refuse_oversized(loaded, design.variants, least_parameters)
    matched, unmatched = match_variants(design.variants, prepared.count)
    design = replace(design, variants=warm.apply(loaded, matched))
    refuse_oversized(loaded, design.variants, lambda config: prepared.count(config).total)
    identities = {
        variant.slug: run_identity(variant.config, prepared.of(variant.config).data_hash) for variant in design.variants
    }
    equal = equal_variants(design.variants, design.baseline, identities, prepared.longest(design.variants), registry)
    variants = tuple(
        _planned(variant, configured_d_ff[variant.slug], prepared, equal.get(variant.slug, (None, None)))
        for variant in design.variants
    )
    trained = [variant for variant in design.variants if variant.slug not in equal]
    draws = {
        (variant.slug, seed): _planned(
            replace(variant, config=variant.config.for_seed(seed)),
            configured_d_ff[variant.slug],
            prepared.for_seeds([seed]),
        )
        for variant in trained
        if variant.config.data.seed == PER_RUN
        for seed in design.seeds
    }
    finished: list[_Finished] = []
    runs: list[PlannedRun] = []
    for variant in trained:
        plugins = plugins_of(variant.config, registry)
        shared_hashes = run_hashes(identities[variant.slug], design.seeds)
        for seed, shared_hash in zip(design.seeds, shared_hashes, strict=True):
            draw = draws.get((variant.slug, seed))
            identity = draw.identity if draw else identities[variant.slug]
            run_hash = run_hashes(identity, [seed])[0] if draw else shared_hash
            directory = f"{variant.slug}-s{seed}-{run_hash[:8]}"
            run = PlannedRun(variant=variant.slug, seed=seed, run_hash=run_hash, directory=directory)
            found = all_existing.find(run_hash, loaded.name, directory) if all_existing else None
            if found is not None:
                refuse_difference(found, identity)
                run = _with_state(run, found, loaded.name, plugins)
                run_directory = RunDirectory(found.path, known=found.status)
                if run.state == states.DONE and (results := run_directory.results):
                    finished.append((run, found.record.execution, results.metrics))
            runs.append(run)
    contrasts = tuple(design.contrasts())
    baseline = prepared.of(design.variant(design.baseline).config)
    plan = Plan(
        loaded=loaded,
        design=design,
        variants=variants,
        runs=tuple(runs),
        runs_root=runs_root,
        data=baseline,
        estimate=Estimate(0.0, ""),
        probes=choose_probes(loaded.file.probes, baseline),
        contrasts=contrasts,
        prepared=prepared.by_hash,
        draws=draws,
        looks=looks,
        initial_weights=warm.checkpoints,
    )
    log.info("planned %s: %d variants, %d runs, %d to run", plan.name, len(variants), len(runs), len(plan.remaining))
    return replace(
        plan,
        estimate=_estimate(plan, finished, prepared),
        power=_power(plan, finished),
        notes=_notes(plan, [*unmatched, *warm.notes]),
    )


class _Data:
    """Prepares the data once per distinct data section, and counts costs on it.

    With ``data.seed: per-run`` it has a draw for each of ``seeds``; costs are those on the draw of the first.
    """

    def __init__(self, registry: Registry, cache: Path, seeds: Sequence[int], location: SourceLocation) -> None:
        self.registry, self.cache, self.seeds, self.location = registry, cache, seeds, location
        self._prepared: dict[str, PreparedData] = {}
        self._sizes: dict[str, DataSizes] = {}
        self._steps_per_epoch: dict[tuple[object, ...], int] = {}
        self._counts: dict[tuple[str, DataSizes], ModelCounts] = {}

    @property
    def by_hash(self) -> dict[str, PreparedData]:
        return {prepared.data_hash: prepared for prepared in self._prepared.values()}

    def for_seeds(self, seeds: Sequence[int]) -> _Data:
        """Return the same data for other seeds."""
        other = copy.copy(self)
        other.seeds = seeds
        return other

    def draws(self, config: RunConfig) -> list[PreparedData]:
        """Return the data of each seed; a single item if all runs have the same data."""
        seeds = self.seeds if config.data.seed == PER_RUN else self.seeds[:1]
        return [self.of(config.for_seed(seed)) for seed in seeds]

    def of(self, config: RunConfig) -> PreparedData:
        config = config.for_seed(self.seeds[0])
        text = config.data.model_dump_json()
        if text not in self._prepared:
            try:
                self._prepared[text] = data.prepare(config.data, self.cache, registry=self.registry)
            except UndefinedError:
                raise
            except HeadToHeadError as error:
                raise self.location.error(str(error)) from error
        return self._prepared[text]

    def find_incompatibility(self, config: RunConfig) -> str | None:
        """Return why a configuration cannot run, or None.

        The data is prepared only if the configuration alone shows no reason.
        """
        reason = find_incompatibility(config, {}, self.registry)
        if reason is not None:
            return reason
        try:
            draws = self.draws(config)
        except UndefinedError as error:
            return str(error)
        longest: dict[str, int] = {side: max(draw.record["longest"][side] for draw in draws) for side in SIDES}
        return find_incompatibility(config, longest, self.registry) or find_unequal_lengths(
            config, (len(ids) for draw in draws for split in draw.splits.values() for ids in split.target)
        )

    def sizes(self, config: RunConfig) -> DataSizes:
        prepared = self.of(config)
        if prepared.data_hash not in self._sizes:
            self._sizes[prepared.data_hash] = DataSizes.from_data(prepared)
        return self._sizes[prepared.data_hash]

    def steps_per_epoch(self, config: RunConfig) -> int:
        data, train, quirks = self.of(config), config.train, config.quirks
        key = data.data_hash, train.batch_tokens, train.length_buckets, train.batch_size, quirks.shift_targets
        if key not in self._steps_per_epoch:
            split = data.splits["train"]
            source = np.array([len(ids) for ids in split.source])
            target = np.array([len(ids) for ids in split.target]) - quirks.shift_targets
            self._steps_per_epoch[key] = make_batches(config, source, target, data.record["longest"]).steps_per_epoch
        return self._steps_per_epoch[key]

    def count(self, config: RunConfig) -> ModelCounts:
        return count_model(config, self.sizes(config), self._counts)

    def longest(self, variants: Sequence[Variant]) -> dict[str, int]:
        """Return the maximum sequence length of training and decoding in tokens, by side."""
        longest = {"source": 1, "target": 1}
        for config in (variant.config for variant in variants):
            for draw in self.draws(config):
                lengths = longest_sequences(config, draw.record["longest"])
                longest["source"] = max(longest["source"], lengths["source"])
                limit = decoding_limit(config, draw.longest_target)
                longest["target"] = max(longest["target"], lengths["target"], limit + 1)
        return longest


def _check_draws(loaded: LoadedExperiment, design: Design, prepared: _Data) -> None:
    """Raise an error if ``data.seed: per-run`` holds for some variants only, or if two seeds have the same data."""
    drawn = [variant for variant in design.variants if variant.config.data.seed == PER_RUN]
    location = loaded.location("base", "data", "seed")
    if drawn and len(drawn) < len(design.variants):
        raise location.error(f"{PER_RUN} must hold for all variants, because variants are compared on the same data")
    for variant in drawn:
        seeds: dict[str, int] = {}
        for seed, draw in zip(design.seeds, prepared.draws(variant.config), strict=True):
            if draw.data_hash in seeds:
                raise location.error(
                    f"{PER_RUN} requires different data for each seed, but seeds {seeds[draw.data_hash]} and {seed} "
                    f"have the same data with dataset '{variant.config.data.dataset}' and split "
                    f"'{variant.config.data.split}'; use a number, or another split"
                )
            seeds[draw.data_hash] = seed


def _planned(
    variant: Variant, d_ff_asked: int, prepared: _Data, equal: tuple[str, str] | tuple[None, None] = (None, None)
) -> PlannedVariant:
    config, registry, data = variant.config, prepared.registry, prepared.of(variant.config)
    steps_per_epoch = prepared.steps_per_epoch(config)
    steps = planned_steps(config.train, steps_per_epoch)
    record = VariantRecord(
        slug=variant.slug,
        title=variant.title,
        axes=variant.axes,
        counts=prepared.count(config),
        d_ff=config.model.d_ff,
        d_ff_asked=d_ff_asked,
        match=variant.match,
        steps=steps,
        evaluate_every=evaluation_interval(config.train, steps),
        decoding_limit=decoding_limit(config, data.longest_target),
        order_invariant=is_order_invariant(config, registry),
        padding_hidden=padding_has_no_effect(config, registry),
        pitfalls=find_pitfalls(config, registry, data.record["leak"]),
        config=config,
        equal_to=equal[0],
        equal_reason=equal[1],
    )
    return PlannedVariant(record, run_identity(config, data.data_hash), steps_per_epoch)


def _with_state(
    planned: PlannedRun, existing: ExistingRun, experiment: str, plugins: Sequence[Registered]
) -> PlannedRun:
    """Return a planned run with the state of an existing run; of other experiments, only runs with the same code."""
    own, record, status = existing.experiment == experiment, existing.record, existing.status
    has_result = status.state in states.RESULTS
    changed = changed_plugins(record.sources, plugins) if has_result else ()
    if changed and not own:
        return planned
    return planned.model_copy(
        update={
            "state": status.state,
            "reason": status.reason,
            "stale": drift(record.versions, record.sources, plugins) if has_result else (),
            "changed_plugins": changed,
            "directory": existing.path.name if own else planned.directory,
            "reused_from": None if own else existing.reference,
        }
    )


_Finished = tuple[PlannedRun, ExecutionRecord | None, Mapping[str, float | None]]
"""A finished run, how it was trained, and its final metrics."""


def _estimate(plan: Plan, finished: Sequence[_Finished], prepared: _Data) -> Estimate:
    work = {
        variant.slug: Work(variant.training_flops(prepared.sizes(variant.config)), variant.config.model.d_model)
        for variant in plan.variants
    }
    measured = [
        Finished(work[run.variant].flops, seconds_of(metrics, execution), execution.threads)
        for run, execution, metrics in finished
        if execution
    ]
    return estimate([work[run.variant] for run in plan.remaining], measured)


def _power(plan: Plan, finished: Sequence[_Finished]) -> tuple[Power, ...]:
    """Return the power of each family of contrasts.

    Contrasts of equal variants are not tested, and contrasts of the same trained runs are counted once.
    """
    metric = reported_metrics(plan.loaded, plan.design.variant(plan.design.baseline).config).primary
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    for run, _, metrics in finished:
        value = metrics.get(metric)
        if value is not None and math.isfinite(value):
            scores[run.variant][run.seed] = value
    trained = {slug: variant.record.equal_to or slug for slug, variant in plan.by_slug.items()}
    families: dict[str, dict[Pairs, None]] = {}
    for contrast in plan.contrasts:
        sides = tuple((trained[left], trained[right]) for left, right in contrast.pairs)
        if any(left != right for left, right in sides):
            families.setdefault(contrast.kind, {})[sides] = None
    powers = []
    for family, tested in families.items():
        means = []
        for sides in tested:
            # Pairs of equal variants enter an interaction as zeros.
            averaged = sides if family == "interaction" else [(left, right) for left, right in sides if left != right]
            differences = pair_differences(scores, averaged)[1]
            if family == "interaction":  # the second pair of each setting has its sides swapped
                differences = differences[::2] + differences[1::2]
            means.append(differences.mean(axis=0))
        seeds = plan.looks.seeds[-1] if plan.looks else len(plan.design.seeds)
        powers.append(Power(family, len(means), seeds, metric, typical_sd(means), plan.looks))
    return tuple(powers)


def _notes(plan: Plan, matching: Sequence[str]) -> tuple[str, ...]:
    notes = [*plan.design.notes, *matching]
    if plan.loaded.file.design and len(plan.variants) == 1:
        notes.append("the design has only the baseline, so nothing is compared")
    for variant in plan.variants:
        record = variant.record
        if record.d_ff != record.d_ff_asked:
            notes.append(
                f"match: {record.match} widened d_ff of {variant.slug} from {record.d_ff_asked} to {record.d_ff}"
            )
    for contrast in plan.contrasts:
        if isinstance(contrast, FactorContrast) and (missing := contrast.pairs_missing):
            notes.append(
                f"{contrast.name} is averaged over {len(contrast.pairs)} complete pairs; "
                f"{missing} {'is' if missing == 1 else 'are'} incomplete and excluded"
            )
    reused = [run for run in plan.runs if run.reused_from]
    if reused:
        notes.append(f"{count_are(len(reused), 'run')} reused from other experiments")
    stale = [run for run in plan.runs if run.stale]
    if stale:
        changes = "; ".join(sorted({change for run in stale for change in run.stale}))
        notes.append(f"{count_are(len(stale), 'finished run')} STALE: {changes}; retrain with --stale")
    data_sets = {variant.data_hash for variant in plan.variants}
    if len(data_sets) > 1:
        notes.append(f"{len(data_sets)} different data sets; the plan describes the baseline's")
    if plan.draws:
        notes.append(f"a new draw of the data for each seed; the plan describes that of seed {plan.design.seeds[0]}")
        if plan.loaded.file.probes is None:
            notes.append(
                f"probe sentences are test sentences of seed {plan.design.seeds[0]}; other seeds may train on them"
            )
    notes += length_notes(plan.by_slug[plan.design.baseline].config, plan.data)
    return tuple(notes)
