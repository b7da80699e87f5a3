"""Create the plan of an experiment: variants, existing runs, exclusions, stacks and costs.

Planning writes only to the cache of prepared data.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headtohead import data
from headtohead.config.entries import plugins_of
from headtohead.config.identity import run_hashes, run_identity
from headtohead.config.labels import listed, text
from headtohead.config.loading import LoadedExperiment
from headtohead.config.versions import changed_plugins, drift
from headtohead.data import PreparedData
from headtohead.data.batches import make_batches
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.planning.compatibility import (
    find_incompatibility,
    find_unequal_lengths,
    longest_sequences,
)
from headtohead.planning.costs import count_model, match_variants, refuse_oversized
from headtohead.planning.design import Design, expand
from headtohead.planning.equality import equal_variants
from headtohead.planning.lengths import choose_probes, decoding_limit, length_notes
from headtohead.planning.pitfalls import find_pitfalls, is_order_invariant, padding_has_no_effect
from headtohead.planning.plan import Estimate, Plan, PlannedRun, PlannedVariant, Tuning, count_are
from headtohead.planning.power import Power
from headtohead.planning.schedule import decays_to_an_end, evaluation_interval, planned_steps
from headtohead.planning.tuning import (
    MAX_WIDENINGS,
    recorded_trials,
    settings_of,
    sweep,
    tuned_variants,
    widened,
)
from headtohead.planning.variants import Variant, comparison_group
from headtohead.plugins.launcher import cpu_cores
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.contrasts import DeclaredContrast, FactorContrast
from headtohead.storage.existing import ExistingRun, ExistingRuns, refuse_difference
from headtohead.storage.experiment import ExperimentDirectory, VariantRecord
from headtohead.storage.record import leaves
from headtohead.storage.run import ExecutionRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead_judge.differences import pair_differences, score_weights
from headtohead_judge.looks import Looks

log = logging.getLogger(__name__)

MAX_FLOPS_PER_CORE = 50e9
"""FLOPs per second and core in float32, evaluation included, that models of width 128 and more reached.

The committed reports have 5 to 10 GFLOP/s for width 32, 18 for 48 and 20 to 30 for 64: roughly 6 · (width / 32)².
"""


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
    look: int | None = None,
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
        look: With sequential seeds, the number of seeds of the planned look; default: the look that the study is at.

    Raises:
        HeadToHeadError: If the baseline cannot run, a model does not fit into memory, or the data or the runs folder
            cannot be read.
    """
    existing = (
        None if fresh else ExistingRuns(runs_root, ignored, None if reuse else loaded.experiments)
    )
    planner = _Planner(loaded, registry, runs_root, cache or data.cache_root(), existing)
    design = expand(loaded, registry, planner.find_incompatibility)
    sequential = loaded.sequential
    looks = Looks.planned(sequential.looks, sequential.at_most) if sequential else None
    if looks is not None:
        if look is None:  # the first look with all seeds of the record
            look = looks.seeds[0]
            with suppress(HeadToHeadError):  # no record, or a damaged record
                recorded = (
                    () if fresh else ExperimentDirectory.read(runs_root / loaded.name).record.seeds
                )
                look = looks.next(len(recorded) - 1) or looks.seeds[-1]
        design = replace(design, seeds=loaded.seeds[:look])
    ready()
    if loaded.file.tune is None:
        return planner.plan(loaded, design, looks)
    trials = {} if fresh else recorded_trials(runs_root / loaded.name)
    settings = dict.fromkeys(
        (variant.slug for variant in design.variants), settings_of(loaded, design, registry)
    )
    for widening in range(MAX_WIDENINGS + 1):
        tried = planner.plan(*sweep(loaded, design, settings))
        tuned = tuned_variants(design, settings, tried, trials)
        wider = {slug: widened(found, tuned.get(slug)) for slug, found in settings.items()}
        if wider == settings or widening == MAX_WIDENINGS:
            break
        settings = wider
    tuning = Tuning(
        settings, tried, tuned if len(tuned) == len(settings) else {}, loaded.file.tune_epochs
    )
    plan = replace(planner.plan(loaded, tuning.apply(design), looks), tuning=tuning)
    if not tried.remaining:
        return plan
    tuning_seconds, estimate = tried.estimate.seconds, plan.estimate
    seconds, most = estimate.seconds + tuning_seconds, estimate.most_seconds + tuning_seconds
    return replace(
        plan, estimate=Estimate(seconds, f"{estimate.basis}, with the tuning runs", most)
    )


@dataclass
class _Planner:
    """Plans the design of an experiment file and that of its sweep, on data that are prepared once per data section."""

    loaded: LoadedExperiment
    registry: Registry
    runs_root: Path
    cache: Path
    existing: ExistingRuns | None

    def __post_init__(self) -> None:
        self.prepared: dict[str, PreparedData] = {}
        self.epochs: dict[tuple[object, ...], tuple[int, int]] = {}

    def data_of(self, config: RunConfig) -> PreparedData:
        """Return the prepared data of a configuration."""
        text = config.data.model_dump_json()
        if text not in self.prepared:
            try:
                self.prepared[text] = data.prepare(config.data, self.cache, registry=self.registry)
            except UndefinedError:
                raise
            except HeadToHeadError as error:
                raise self.loaded.location("base", "data").error(str(error)) from error
        return self.prepared[text]

    def find_incompatibility(self, config: RunConfig) -> str | None:
        """Return why a configuration cannot run, or None; data are prepared only if the fields show no reason."""
        reason = find_incompatibility(config, {}, self.registry)
        if reason is not None:
            return reason
        try:
            prepared = self.data_of(config)
        except UndefinedError as error:
            return str(error)
        lengths = (len(ids) for split in prepared.splits.values() for ids in split.target)
        return find_incompatibility(
            config, prepared.record["longest"], self.registry
        ) or find_unequal_lengths(config, lengths)

    def plan(self, loaded: LoadedExperiment, design: Design, looks: Looks | None = None) -> Plan:
        """Return the plan of a design."""
        asked = {variant.slug: variant.config.model.d_ff for variant in design.variants}
        match = next(
            (variant.match for variant in design.variants if variant.match != "none"), None
        )
        if match and "model.d_ff" in design.axes:
            raise loaded.location("match").error(
                f"'{match}' widens model.d_ff, which is an axis of this design; set match: none"
            )
        for variant in design.variants:
            refuse_oversized(loaded, variant)
        matched, unmatched = list[Variant](), list[str]()
        for group in dict.fromkeys(
            tuple(comparison_group(variant.axes).items()) for variant in design.variants
        ):
            compared = [
                variant
                for variant in design.variants
                if comparison_group(variant.axes) == dict(group)
            ]
            found, notes = match_variants(
                compared, lambda config: count_model(config, self.data_of(config))
            )
            matched, unmatched = matched + found, unmatched + notes
        design = replace(design, variants=tuple(matched))
        planned = [self.planned(variant, asked[variant.slug]) for variant in design.variants]
        for item in planned:
            refuse_oversized(loaded, item.record, item.record.counts.total)
        longest = {"source": 1, "target": 1}
        for item in planned:
            config = item.config
            prepared = self.data_of(config)
            lengths = longest_sequences(config, prepared.record["longest"])
            before = 0 if "encoder" in config.roles else lengths["source"]
            decoded = {
                "source": 0,
                "target": before + decoding_limit(config, prepared.longest_target) + 1,
            }
            longest = {side: max(longest[side], lengths[side], decoded[side]) for side in longest}
        identities = {item.slug: item.identity for item in planned}
        equal = equal_variants(design.variants, design.baseline, identities, longest, self.registry)
        variants = []
        for item in planned:
            equal_to, reason = equal.get(item.slug, (None, None))
            record = item.record.model_copy(update={"equal_to": equal_to, "equal_reason": reason})
            variants.append(replace(item, record=record))
        baseline = self.data_of(design.variant(design.baseline).config)
        plan = Plan(
            loaded=loaded,
            design=design,
            variants=tuple(variants),
            runs=(),
            runs_root=self.runs_root,
            data=baseline,
            estimate=Estimate(0.0, "", 0.0),
            probes=choose_probes(loaded.file.probes, baseline),
            contrasts=tuple(design.contrasts()),
            prepared={prepared.data_hash: prepared for prepared in self.prepared.values()},
            looks=looks,
        )
        runs, finished = self.runs(plan)
        plan = replace(plan, runs=tuple(runs))
        log.info(
            "planned %s: %d variants, %d runs, %d to run",
            plan.name,
            len(variants),
            len(runs),
            len(plan.remaining),
        )
        return replace(
            plan,
            estimate=_estimate(plan, finished),
            power=_power(plan, finished),
            notes=_notes(plan, unmatched),
        )

    def planned(self, variant: Variant, d_ff_asked: int) -> PlannedVariant:
        """Return a variant with its costs."""
        config, prepared = variant.config, self.data_of(variant.config)
        train, quirks = config.train, config.quirks
        batching = train.batch_tokens, train.length_buckets, train.batch_size
        key = prepared.data_hash, *batching, quirks.shift_targets, config.model.architecture
        if key not in self.epochs:
            source, target = prepared.train_lengths
            batches = make_batches(
                config, source, target - quirks.shift_targets, prepared.record["longest"]
            )
            self.epochs[key] = batches.steps_per_epoch, batches.tokens_per_epoch
        steps = planned_steps(train, *self.epochs[key])
        record = VariantRecord(
            slug=variant.slug,
            title=variant.title,
            axes=variant.axes,
            counts=count_model(config, prepared),
            d_ff=config.model.d_ff,
            d_ff_asked=d_ff_asked,
            match=variant.match,
            steps=steps,
            evaluate_every=evaluation_interval(train, steps),
            decoding_limit=decoding_limit(config, prepared.longest_target),
            order_invariant=is_order_invariant(config, self.registry),
            padding_hidden=padding_has_no_effect(config, self.registry),
            rate_decays=decays_to_an_end(train),
            pitfalls=find_pitfalls(config, self.registry, prepared.record["leak"]),
            config=config,
        )
        return PlannedVariant(record, run_identity(config, prepared.data_hash), self.epochs[key][0])

    def runs(self, plan: Plan) -> tuple[list[PlannedRun], list[_Finished]]:
        """Return the runs of a plan with the states of their directories, and those that are finished."""
        finished: list[_Finished] = []
        runs: list[PlannedRun] = []
        for variant in plan.variants:
            if variant.record.equal_to:
                continue
            plugins = plugins_of(variant.config)
            hashes = run_hashes(variant.identity, plan.design.seeds)
            for seed, run_hash in zip(plan.design.seeds, hashes, strict=True):
                directory = f"{variant.slug}-s{seed}-{run_hash[:8]}"
                run = PlannedRun(
                    variant=variant.slug, seed=seed, run_hash=run_hash, directory=directory
                )
                found = (
                    self.existing.find(run_hash, plan.name, directory) if self.existing else None
                )
                if found is not None:
                    refuse_difference(found, variant.identity)
                    run = _with_state(run, found, plan.name, plugins)
                    if run.state == states.DONE:
                        metrics = RunDirectory(found.path, known=found.status).final_metrics
                        finished.append((run, found.record.execution, metrics))
                runs.append(run)
        return runs, finished


def _with_state(
    planned: PlannedRun, existing: ExistingRun, experiment: str, plugins: Sequence[Registered]
) -> PlannedRun:
    """Return a planned run with the state of an existing run; of other experiments, only runs with the same code."""
    own, record, status = existing.experiment == experiment, existing.record, existing.status
    has_result = status.state in states.RESULTS
    changed = changed_plugins(record.sources, plugins)
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


def _estimate(plan: Plan, finished: Sequence[_Finished]) -> Estimate:
    """Estimate the time of the remaining runs on this machine."""
    flops = {
        slug: variant.training_flops(plan.prepared[variant.data_hash])
        for slug, variant in plan.by_slug.items()
    }
    measured = [
        (flops[run.variant] * len(execution.stack) / seconds, execution.threads)
        for run, execution, metrics in finished
        if execution and (seconds := metrics.get("system/wall_seconds")) and flops[run.variant]
    ]
    cores = cpu_cores()
    if not measured:
        widths = {slug: variant.config.model.d_model for slug, variant in plan.by_slug.items()}
        rates = {
            slug: cores * min(MAX_FLOPS_PER_CORE, 6e9 * (width / 32) ** 2)
            for slug, width in widths.items()
        }
        basis = f"rough: no finished run, if {cores} cores are idle"
    else:
        threads = round(statistics.median(threads for _, threads in measured))
        # Every process gets a stack if there are enough runs.
        parallel = max(1, min(len(plan.remaining), cores // max(1, threads)))
        rates = dict.fromkeys(flops, parallel * statistics.median(rate for rate, _ in measured))
        basis = f"from {len(measured)} finished runs, {parallel} in parallel"
    seconds = sum(flops[run.variant] / rates[run.variant] for run in plan.remaining)
    later = plan.looks.seeds[-1] - len(plan.design.seeds) if plan.looks else 0
    trained = [variant.slug for variant in plan.variants if variant.record.equal_to is None]
    return Estimate(
        seconds, basis, seconds + later * sum(flops[slug] / rates[slug] for slug in trained)
    )


_Side = tuple[str, str, tuple[int, int] | None]
"""A variant, a metric and the source lengths that count, if not all."""


def _power(plan: Plan, finished: Sequence[_Finished]) -> tuple[Power, ...]:
    """Return the power of each family of contrasts, for each metric of the family.

    Contrasts of equal scores are not tested, and contrasts of the same scores are counted once.
    """
    primary = plan.metrics.primary
    trained = {slug: variant.record.equal_to or slug for slug, variant in plan.by_slug.items()}
    scores: dict[_Side, dict[int, float]] = defaultdict(dict)
    for run, _, metrics in finished:
        for name, value in metrics.items():
            if value is not None and math.isfinite(value):
                scores[run.variant, name, None][run.seed] = value
    families: dict[str, dict[tuple[tuple[_Side, _Side], ...], str]] = {}
    for contrast in plan.contrasts:
        own: tuple[str, tuple[int, int] | None] = (primary, None)
        other = own
        if isinstance(contrast, DeclaredContrast):
            own = contrast.metric or primary, contrast.lengths
            other = contrast.against_metric or own[0], contrast.against_lengths or own[1]
        sides = tuple(
            ((trained[left], *own), (trained[right], *other)) for left, right in contrast.pairs
        )
        if any(left != right for left, right in sides):
            families.setdefault(contrast.kind, {}).setdefault(sides, contrast.name)
    given = plan.loaded.file.margin
    margins = given if isinstance(given, dict) else {primary: given}
    variants = len({*trained.values()}) // len(
        {tuple(comparison_group(plan.by_slug[own].record.axes).items()) for own in trained}
    )
    seeds = plan.looks.seeds[-1] if plan.looks else len(plan.design.seeds)
    powers = []
    for family, tested in families.items():
        for metric in dict.fromkeys(sides[0][0][1] for sides in tested):
            means, weights, own_names = [], [], []
            for sides, name in tested.items():
                if sides[0][0][1] != metric:
                    continue
                # Pairs of equal variants enter an interaction as zeros.
                averaged = (
                    sides
                    if family == "interaction"
                    else [pair for pair in sides if pair[0] != pair[1]]
                )
                differences = pair_differences(scores, averaged)[1]
                if family == "interaction":  # the second pair of each setting has its sides swapped
                    differences = differences[::2] + differences[1::2]
                means.append(differences.mean(axis=0))
                squares = (weight**2 for weight in score_weights(averaged).values())
                weights.append(sum(squares) / len(differences) ** 2)
                own_names.append(name)
            sds = [float(differences.std(ddof=1)) for differences in means if len(differences) > 1]
            powers.append(
                Power(
                    family,
                    tuple(own_names),
                    seeds,
                    variants,
                    metric,
                    primary=primary,
                    tested=len(tested),
                    weight=max(weights),
                    margin=margins.get(metric),
                    sd=(statistics.median(sds) or None) if sds else None,
                    looks=plan.looks,
                )
            )
    return tuple(powers)


def _notes(plan: Plan, matching: Sequence[str]) -> tuple[str, ...]:
    notes = [*plan.design.notes, *matching]
    if plan.loaded.file.design and len(plan.variants) == 1:
        reasons = [f"{own.slug} is excluded: {own.reason}" for own in plan.design.excluded[:3]]
        notes.append(
            "; ".join(["the design has only the baseline, so nothing is compared", *reasons])
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
        notes.append(
            f"{count_are(len(stale), 'finished run')} STALE: {changes}; retrain with --stale"
        )
    data_sets = {variant.data_hash for variant in plan.variants}
    if len(data_sets) > 1:
        fields = [
            dict(leaves(variant.config.data.model_dump(mode="json"))) for variant in plan.variants
        ]
        differing = (
            name for name in fields[0] if len({str(each.get(name)) for each in fields}) > 1
        )
        names = listed([f"data.{name.removeprefix('options.')}" for name in differing])
        where = f", which differ in {names}" * bool(names)
        notes.append(f"{len(data_sets)} data sets{where}; the plan describes the baseline's")
    lost = [slug for slug in plan.by_slug if plan.design.baseline_of(slug) is None]
    if lost:
        groups = {
            ", ".join(map(text, comparison_group(plan.by_slug[slug].record.axes).values()))
            for slug in lost
        }
        notes.append(
            f"no baseline with {' or '.join(sorted(groups))}, so these are not compared: {', '.join(lost)}"
        )
    notes += length_notes(plan.by_slug[plan.design.baseline].config, plan.data)
    return tuple(notes)
