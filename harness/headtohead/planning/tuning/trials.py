"""The results of tuning runs, and the settings that they choose."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from headtohead.planning.design import Design
from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.planning.tuning.choice import Choice, choose
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.planning.tuning.sweep import swept_slug
from headtohead.planning.tuning.widening import edges
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.metrics import as_ratio, stored
from headtohead.storage.tuning import (
    TUNING_METRIC,
    TrialRecord,
    TrialRun,
    TunedVariant,
    TuningRecord,
)

TOLERANCE = 1e-6
"""Relative difference of losses that is a rounding error and changes no stored choice."""

Tried = Mapping[str, tuple[TrialRecord, ...]]
"""The tried settings by variant."""


def recorded_tuning(experiment: Path) -> TuningRecord | None:
    """Return the tuning in the record of an experiment; None without it, without a record, or if it is damaged."""
    record = ExperimentDirectory.find_record(experiment)
    return None if record is None else record.tuning


def tried_settings(
    design: Design,
    settings: Mapping[str, Sequence[TuningSetting]],
    plan: Plan,
    recorded: TuningRecord | None,
    metrics: Collection[str],
) -> dict[str, tuple[TrialRecord, ...]]:
    """Return the tried settings of each variant whose planned tuning runs all have a result; others are absent.

    A run has a result if it is DONE or diverged, or if ``recorded`` has its scores.

    Args:
        design: The design of the experiment.
        settings: The settings by variant, first those that the file lists.
        plan: The plan of the sweep.
        recorded: The tuning of an earlier plan, which has the scores of runs that were deleted.
        metrics: The metrics of the report. Their scores are kept besides the metric that chooses.
    """
    scores = _scores_by_run(plan, recorded, metrics)
    tried = {}
    for variant in design.variants:
        trials = []
        for setting in settings[variant.slug]:
            runs = plan.runs_of(swept_slug(variant.slug, setting))
            if all(run.run_hash in scores for run in runs):
                trials.append(_trial(setting, runs, scores))
        if len(trials) == len(settings[variant.slug]):
            tried[variant.slug] = tuple(trials)
    return tried


def _scores_by_run(
    plan: Plan, recorded: TuningRecord | None, metrics: Collection[str]
) -> Mapping[str, Mapping[str, float]]:
    """Return the finite scores of each tuning run with a result, by the hash of the run.

    They are empty for a run that diverged or whose `TUNING_METRIC` is missing or not finite. Runs that have no result
    now have the scores of ``recorded``, if it has them.
    """
    scores: dict[str, Mapping[str, float]] = {}
    if recorded is not None:
        for tuned in recorded.variants.values():
            for trial in tuned.tried:
                scores.update({run.run_hash: run.scores for run in trial.runs})
    for run in plan.runs:
        if run.is_done:
            scores[run.run_hash] = {}  # the runs that did not diverge get their scores below
    names = _stored_metrics(metrics)
    for finished in plan.finished:
        loss = finished.metrics.get(TUNING_METRIC)
        if loss is None or not math.isfinite(loss):
            continue
        finite = {}
        for name in names:
            value = finished.metrics.get(name)
            if value is not None and math.isfinite(value):
                finite[name] = value
        scores[finished.run.run_hash] = finite
    return scores


def _stored_metrics(reported: Collection[str]) -> list[str]:
    """Return the metrics that tables of these reported metrics may need, without metrics of heads."""
    names = [TUNING_METRIC]
    for metric in reported:
        ratio = as_ratio(metric)
        names += [metric, stored(metric)]
        if ratio is not None:
            names.append(ratio)
    return [name for name in dict.fromkeys(names) if not name.startswith("heads/")]


def _trial(
    setting: TuningSetting,
    runs: Sequence[PlannedRun],
    scores: Mapping[str, Mapping[str, float]],
) -> TrialRecord:
    """Return a tried setting with the scores of its runs."""
    trial_runs = tuple(
        TrialRun(run_hash=run.run_hash, seed=run.seed, scores=scores[run.run_hash]) for run in runs
    )
    return TrialRecord(values=setting.values, runs=trial_runs, is_further=setting.is_further)


def further_seeds_for(
    settings: Mapping[str, Sequence[TuningSetting]], choices: Mapping[str, Choice]
) -> set[str]:
    """Return the slugs of the tuning variants that need further seeds: the candidates of each choice."""
    slugs = set()
    for slug, choice in choices.items():
        values = [trial.values for trial in choice.candidates]
        for setting in settings[slug]:
            if setting.values in values:
                slugs.add(swept_slug(slug, setting))
    return slugs


def choices_of(tried: Tried, num_seeds: int) -> dict[str, Choice]:
    """Return the choice of each variant from its tried settings."""
    return {slug: choose(trials, num_seeds) for slug, trials in tried.items()}


def tuned_variants(
    tried: Tried, num_seeds: int, recorded: TuningRecord | None
) -> dict[str, TunedVariant]:
    """Return the chosen setting of each variant.

    A recorded choice is kept if its settings and runs are the same, with the same losses within rounding, so that
    another last digit of a fit trains nothing again.
    """
    tuned = {}
    for slug, trials in tried.items():
        earlier = None if recorded is None else recorded.variants.get(slug)
        if earlier is not None and _are_same(earlier.tried, trials):
            tuned[slug] = earlier.model_copy(update={"tried": trials})
        else:
            tuned[slug] = tuned_variant(trials, choose(trials, num_seeds))
    return tuned


def tuned_variant(tried: tuple[TrialRecord, ...], choice: Choice) -> TunedVariant:
    """Return the record of a choice from these settings."""
    return TunedVariant(
        chosen=choice.values,
        rule=choice.rule,
        reason=choice.reason,
        curve=None if choice.fits is None else choice.fits.record,
        at_the_edge=tuple(edges(tried, choice, choice.values)),
        tried=tried,
    )


def _are_same(earlier: Sequence[TrialRecord], tried: Sequence[TrialRecord]) -> bool:
    """Return whether two sweeps have the same settings and runs, with the same losses within rounding."""
    if [trial.values for trial in earlier] != [trial.values for trial in tried]:
        return False
    for one, other in zip(earlier, tried, strict=True):
        if [run.run_hash for run in one.runs] != [run.run_hash for run in other.runs]:
            return False
        losses = zip(one.scores(TUNING_METRIC), other.scores(TUNING_METRIC), strict=True)
        if not all(_is_close(first, second) for first, second in losses):
            return False
    return True


def _is_close(first: float, second: float) -> bool:
    """Return whether two losses are equal within rounding, or both are missing."""
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return math.isclose(first, second, rel_tol=TOLERANCE)
