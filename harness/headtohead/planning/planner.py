"""Making the plan: what would run, what is done, what is refused and why, what it costs.

Nothing is written here but the cache of prepared data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headtohead import data
from headtohead.config.identity import canonical, keys_of
from headtohead.config.loading import LoadedExperiment
from headtohead.config.versions import drift, plugins_of
from headtohead.data import PreparedData
from headtohead.data.batches import make_batches
from headtohead.errors import UndefinedError
from headtohead.model.counting import Counts
from headtohead.planning.axes import Match
from headtohead.planning.compatibility import reach, undefined_reason, uneven
from headtohead.planning.costs import CostCounter, DataSizes, Estimate, Finished, estimate, seconds_of
from headtohead.planning.design import Design, Variant, expand
from headtohead.planning.equality import Equal, equal_variants
from headtohead.planning.lengths import decoding_limit, length_notes
from headtohead.planning.matching import match_variants, widths
from headtohead.planning.order import is_blind_to_order
from headtohead.planning.plan import Plan, PlannedRun, PlannedVariant, directory_name
from headtohead.planning.power import Power, power_of, typical_sd
from headtohead.planning.probes import choose_probes
from headtohead.planning.schedule import evaluation_interval, planned_steps
from headtohead.planning.tuning import Tuning, find_tried, settings_of, sweep
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.existing import ExistingRun, ExistingRuns, refuse_difference
from headtohead.storage.records import ContrastRecord, FactorContrast, RunRecord
from headtohead.storage.run_directory import RunDirectory


def make_plan(
    loaded: LoadedExperiment,
    registry: Registry,
    runs_root: Path,
    cache: Path | None = None,
    *,
    fresh: bool = False,
    ready: Callable[[], object] = lambda: None,
) -> Plan:
    """Plan a checked experiment.

    Args:
        loaded: The experiment file.
        registry: Of this process; counting looks entries up in it too.
        runs_root: Folder that holds one folder per experiment; it may not exist yet.
        cache: Of data; default: H2H_CACHE or ~/.cache/headtohead.
        fresh: Take no run that exists for done.
        ready: Called once the file is known to be sound, before costs are counted.

    Raises:
        HeadToHeadError: If the baseline is not defined, or data or runs folder cannot be read.
    """
    prepared = _Data(registry, cache or data.cache_root())
    design = expand(loaded, registry, prepared.undefined)
    ready()
    tuning = None
    if loaded.file.tune is not None:
        settings = settings_of(loaded, design, registry)
        tried = _plan(*sweep(loaded, design, settings), prepared, runs_root, fresh)
        tuning = Tuning(tuple(settings), tried, find_tried(design, settings, tried))
        design = tuning.apply(design)
    return replace(_plan(loaded, design, prepared, runs_root, fresh), tuning=tuning)


def _plan(loaded: LoadedExperiment, design: Design, prepared: _Data, runs_root: Path, fresh: bool) -> Plan:
    registry = prepared.registry
    asked = widths(design.variants)
    _refuse_matched_width(design, loaded)
    matched = match_variants(design.variants, prepared.count)
    design = replace(design, variants=matched.variants)
    identities = {
        one.slug: canonical(one.config, prepared.of(one.config).data_hash, registry) for one in design.variants
    }
    longest = prepared.longest(design.variants)
    equal = equal_variants(design.variants, design.baseline, identities, longest, registry)
    variants = tuple(
        _planned(one, asked[one.slug], equal.get(one.slug), identities[one.slug], prepared) for one in design.variants
    )
    keys = {one.slug: keys_of(one.identity, design.seeds) for one in variants if one.equal is None}
    planned = [
        PlannedRun(slug, seed, key, directory_name(slug, seed, key))
        for slug, of_seeds in keys.items()
        for seed, key in zip(design.seeds, of_seeds, strict=True)
    ]
    found = {} if fresh else _find_runs(planned, identities, runs_root, loaded.name)
    runs = tuple(_as_found(planned, found, variants, loaded.name, registry))
    contrasts = tuple(design.contrasts())
    results = _Results(runs, found, variants, prepared)
    baseline = next(one for one in variants if one.slug == design.baseline)
    plan = Plan(
        loaded=loaded,
        design=design,
        variants=variants,
        runs=runs,
        runs_root=runs_root,
        data=prepared.of(baseline.config),
        estimate=Estimate(0.0, ""),
        power=_power(contrasts, equal, len(design.seeds), results, loaded.file.metrics.primary),
        notes=(),
        probes=choose_probes(loaded.file.probes, prepared.of(baseline.config)),
        contrasts=contrasts,
        prepared=prepared.by_fingerprint,
    )
    plan = replace(plan, estimate=results.estimate(plan.remaining))
    return replace(plan, notes=_notes(plan, matched.notes))


class _Data:
    """Prepared data, read once per distinct data section."""

    def __init__(self, registry: Registry, cache: Path) -> None:
        self.registry, self.cache = registry, cache
        self._prepared: dict[str, PreparedData] = {}
        self._sizes: dict[str, DataSizes] = {}
        self._steps_per_epoch: dict[tuple[object, ...], int] = {}
        self._counter = CostCounter()

    @property
    def by_fingerprint(self) -> dict[str, PreparedData]:
        return {one.data_hash: one for one in self._prepared.values()}

    def of(self, config: RunConfig) -> PreparedData:
        text = config.data.model_dump_json()
        if text not in self._prepared:
            self._prepared[text] = data.prepare(config.data, self.cache, registry=self.registry)
        return self._prepared[text]

    def undefined(self, config: RunConfig) -> str | None:
        """Return why a configuration has no meaning; the data is read only where that decides."""
        reason = undefined_reason(config, {}, self.registry)
        if reason is not None:
            return reason
        try:
            prepared = self.of(config)
        except UndefinedError as error:
            return str(error)
        reason = undefined_reason(config, prepared.record["longest"], self.registry)
        return reason or uneven(config, (len(ids) for split in prepared.splits.values() for ids in split.target))

    def sizes(self, config: RunConfig) -> DataSizes:
        ready = self.of(config)
        if ready.data_hash not in self._sizes:
            self._sizes[ready.data_hash] = DataSizes.of(ready)
        return self._sizes[ready.data_hash]

    def steps_per_epoch(self, config: RunConfig) -> int:
        data, train, quirks = self.of(config), config.train, config.quirks
        key = data.data_hash, train.batch_tokens, train.length_buckets, train.batch_size, quirks.shift_targets
        if key not in self._steps_per_epoch:
            split = data.splits["train"]
            source = np.array([len(ids) for ids in split.source])
            target = np.array([len(ids) for ids in split.target]) - quirks.shift_targets
            self._steps_per_epoch[key] = make_batches(config, source, target, data.record["longest"]).steps_per_epoch
        return self._steps_per_epoch[key]

    def count(self, config: RunConfig) -> Counts:
        return self._counter.count(config, self.sizes(config))

    def decoding_limit(self, config: RunConfig) -> int:
        return decoding_limit(config, self.of(config).longest_target)

    def longest(self, variants: Sequence[Variant]) -> dict[str, int]:
        """Return the longest sequence that training or decoding can meet, by side."""
        longest = {"source": 1, "target": 1}
        for one in variants:
            here = reach(one.config, self.of(one.config).record["longest"])
            written = self.decoding_limit(one.config)
            longest["source"] = max(longest["source"], here["source"])
            longest["target"] = max(longest["target"], here["target"], written + 1)
        return longest


def _refuse_matched_width(design: Design, loaded: LoadedExperiment) -> None:
    used = next((one.match for one in design.variants if one.match != "none"), None)
    if used and "model.d_ff" in design.axes:
        raise loaded.location("match").error(
            f"'{used}' widens model.d_ff, which is an axis of this design; use match: none"
        )


def _planned(
    variant: Variant, d_ff_asked: int, equal: Equal | None, identity: Mapping[str, Any], prepared: _Data
) -> PlannedVariant:
    steps_per_epoch = prepared.steps_per_epoch(variant.config)
    steps = planned_steps(variant.config.train, steps_per_epoch)
    return PlannedVariant(
        variant=variant,
        counts=prepared.count(variant.config),
        steps=steps,
        steps_per_epoch=steps_per_epoch,
        evaluate_every=evaluation_interval(variant.config.train, steps),
        d_ff_asked=d_ff_asked,
        data_hash=identity["data_hash"],
        identity=identity,
        decoding_limit=prepared.decoding_limit(variant.config),
        blind_to_order=is_blind_to_order(variant.config, prepared.registry),
        equal=equal,
    )


def _find_runs(
    runs: Iterable[PlannedRun], identities: Mapping[str, Mapping[str, Any]], root: Path, experiment: str
) -> dict[tuple[str, int], ExistingRun]:
    existing = ExistingRuns(root)
    found = {}
    agreed: dict[str, object] = {}
    for run in runs:
        here = existing.find(run.key, experiment, run.directory)
        if here is not None:
            refuse_difference(here, identities[run.variant], agreed.get(run.variant))
            agreed[run.variant] = here.record.config
            found[run.variant, run.seed] = here.compared()
    return found


def _as_found(
    runs: Iterable[PlannedRun],
    found: Mapping[tuple[str, int], ExistingRun],
    variants: Iterable[PlannedVariant],
    experiment: str,
    registry: Registry,
) -> Iterator[PlannedRun]:
    """Yield the runs with what the runs folder says of them."""
    used = {one.slug: plugins_of(one.config, registry) for one in variants}
    for run in runs:
        here = found.get((run.variant, run.seed))
        yield run if here is None else _run(run, here, experiment, used[run.variant])


def _run(planned: PlannedRun, found: ExistingRun, experiment: str, used: Sequence[Registered]) -> PlannedRun:
    state, own = found.state, found.experiment == experiment
    return replace(
        planned,
        state=state,
        reason=found.status.reason,
        stale=drift(found.record.versions, found.record.sources, used) if state in states.RESULTS else (),
        directory=found.directory if own else planned.directory,
        reused_from=None if own else found.reference,
    )


class _Results:
    """Finished runs: what they took and what they scored."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        found: Mapping[tuple[str, int], ExistingRun],
        variants: Sequence[PlannedVariant],
        prepared: _Data,
    ) -> None:
        self.variants = {one.slug: one for one in variants}
        self.prepared = prepared
        done = [run for run in runs if run.state == states.DONE]
        self.found = [(run, found[run.variant, run.seed]) for run in done]

    @cached_property
    def _results(self) -> list[tuple[PlannedRun, RunRecord, Mapping[str, float | None]]]:
        read = ((run, found.record, RunDirectory(found.path).results) for run, found in self.found)
        return [(run, record, results.metrics) for run, record, results in read if results]

    def scores(self, metric: str) -> dict[str, dict[int, float]]:
        """Return finite scores by variant and seed."""
        table: dict[str, dict[int, float]] = {}
        for run, _, metrics in self._results:
            value = metrics.get(metric)
            if value is not None and math.isfinite(value):
                table.setdefault(run.variant, {})[run.seed] = value
        return table

    def estimate(self, remaining: Sequence[PlannedRun]) -> Estimate:
        finished = [
            Finished(
                self._work(run.variant),
                seconds_of(metrics, record.execution),
                record.execution.threads if record.execution else 1,
            )
            for run, record, metrics in self._results
        ]
        # As many stacks as there are processes, where there are enough runs.
        return estimate([self._work(run.variant) for run in remaining], len(remaining), finished)

    def _work(self, slug: str) -> float:
        return self.variants[slug].training_flops(self.prepared.sizes(self.variants[slug].config))


def _power(
    contrasts: Sequence[ContrastRecord], equal: Mapping[str, Equal], seeds: int, results: _Results, metric: str
) -> tuple[Power, ...]:
    """Compute what each family of contrasts can detect; contrasts of equals are no tests."""
    scores = results.scores(metric)

    def trained(slug: str) -> str:
        return equal[slug].to if slug in equal else slug

    found = []
    for family in ("variant", "factor", "choice"):
        tested = []
        for contrast in (contrast for contrast in contrasts if contrast.kind == family):
            sides = [(trained(left), trained(right)) for left, right in contrast.pairs]
            distinct = [(left, right) for left, right in sides if left != right]
            if distinct:
                # equal steps of a path count, as zeros of a Shapley value
                tested.append(_averaged(sides if family == "choice" else distinct, scores))
        if tested:
            averages = {
                f"{number}{side}": values
                for number, both in enumerate(tested)
                for side, values in zip("+-", both, strict=True)
            }
            names = [(f"{number}+", f"{number}-") for number in range(len(tested))]
            sd = typical_sd(names, averages)
            found.append(power_of(family, len(tested), seeds, metric, sd))
    return tuple(found)


def _averaged(
    pairs: Sequence[tuple[str, str]], scores: Mapping[str, Mapping[int, float]]
) -> tuple[dict[int, float], dict[int, float]]:
    """Average both sides of a contrast over its pairs, within each seed that all of them have."""
    sides = [[scores.get(pair[number], {}) for pair in pairs] for number in (0, 1)]
    shared = set.intersection(*(set(one) for side in sides for one in side))
    left, right = ({seed: sum(one[seed] for one in side) / len(side) for seed in shared} for side in sides)
    return left, right


def _notes(plan: Plan, matching: Sequence[str]) -> tuple[str, ...]:
    notes = [*plan.design.notes, *matching]
    widened = [one for one in plan.variants if one.config.model.d_ff != one.d_ff_asked]
    for one in widened:
        kind: Match = one.variant.match
        notes.append(f"match: {kind} widened d_ff of {one.slug} from {one.d_ff_asked} to {one.config.model.d_ff}")
    for contrast in plan.contrasts:
        if isinstance(contrast, FactorContrast) and (missing := contrast.pairs_missing):
            notes.append(
                f"{contrast.name} is averaged over {len(contrast.pairs)} complete pairs; "
                f"{missing} {'is' if missing == 1 else 'are'} incomplete and left out"
            )
    reused = [run for run in plan.runs if run.reused_from]
    if reused:
        notes.append(f"{_runs(reused)} reused from other experiments")
    stale = [run for run in plan.runs if run.stale]
    if stale:
        what = "; ".join(sorted({item for run in stale for item in run.stale}))
        notes.append(f"{_runs(stale, 'finished ')} STALE: {what}; --fresh trains anew")
    if len(plan.prepared) > 1:
        notes.append(f"{len(plan.prepared)} different data sets; the baseline's is described")
    notes += length_notes(plan.by_slug[plan.design.baseline].config, plan.data)
    seeds = len(plan.design.seeds)
    if 1 < seeds < 6 and plan.power:
        notes.append(f"{seeds} seeds: even one sign-flip test cannot reach 0.05 with fewer than 6")
    return tuple(notes)


def _runs(runs: Sequence[PlannedRun], kind: str = "") -> str:
    return f"1 {kind}run is" if len(runs) == 1 else f"{len(runs)} {kind}runs are"
