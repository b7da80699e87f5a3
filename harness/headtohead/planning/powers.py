"""The power of a plan's contrasts, with the standard deviations of its finished runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from headtohead.planning.plan import Plan
from headtohead.planning.power import Power
from headtohead.planning.variants import comparison_group
from headtohead_judge.contrast import Contrast, Side, SideScores
from headtohead_judge.noise import expected_deviation, read_noise


def powers_of(plan: Plan) -> tuple[Power, ...]:
    """Return the power of each family of contrasts, for each metric of the family.

    A contrast between two metrics counts for the first of them. Contrasts that are always 0 are not tested, and
    contrasts of the same difference are counted once.
    """
    primary = plan.metrics.primary
    scores = _finished_scores(plan)
    data_names = {variant.record.data_name for variant in plan.variants}
    noise = read_noise() if len(data_names) == 1 else []
    data = data_names.pop()
    powers = []
    for family, contrasts in _tested_contrasts(plan).items():
        by_metric: dict[str, list[Contrast]] = {}
        for contrast in contrasts:
            by_metric.setdefault(contrast.metrics[0], []).append(contrast)
        for metric, members in by_metric.items():
            powers.append(
                Power(
                    family,
                    tuple(contrast.name for contrast in members),
                    plan.looks.seeds[-1] if plan.looks else len(plan.design.seeds),
                    _variants_per_data_set(plan),
                    metric,
                    primary=primary,
                    tested=len(contrasts),
                    weight=max(contrast.squared_weight for contrast in members),
                    margin=plan.margins.get(metric),
                    sd=_median_sd(members, scores),
                    expected=expected_deviation(noise, metric, data, without=plan.loaded.name),
                    looks=plan.looks,
                )
            )
    return tuple(powers)


def _finished_scores(plan: Plan) -> SideScores:
    """Return the finite metrics of the finished runs."""
    scores: dict[Side, dict[int, float]] = {}
    for finished in plan.finished:
        for metric, value in finished.metrics.items():
            if value is not None and math.isfinite(value):
                side = Side(finished.run.variant, metric)
                scores.setdefault(side, {})[finished.run.seed] = value
    return scores


def _tested_contrasts(plan: Plan) -> dict[str, list[Contrast]]:
    """Return the contrasts of the variants that train, by family, without those that are not tested."""
    trained = {slug: variant.record.equal_to or slug for slug, variant in plan.by_slug.items()}
    families: dict[str, dict[object, Contrast]] = {}
    for record in plan.contrasts:
        contrast = record.contrast(plan.metrics.primary).of_trained(trained.__getitem__)
        if contrast.weights:
            tested = contrast.without_empty_settings()
            families.setdefault(contrast.family, {}).setdefault(tested.key, tested)
    return {family: list(contrasts.values()) for family, contrasts in families.items()}


def _variants_per_data_set(plan: Plan) -> int:
    """Return the mean number of variants that train with the same data and size, rounded down."""
    groups = {tuple(comparison_group(variant.record.axes).items()) for variant in plan.variants}
    return len(plan.trained_variants) // len(groups)


def _median_sd(contrasts: Sequence[Contrast], scores: SideScores) -> float | None:
    """Return the median standard deviation of contrasts over seeds.

    Contrasts with fewer than two seeds are left out. None if no contrast is left, or if the median is 0 (constant
    scores, from which no power follows).
    """
    sds = []
    for contrast in contrasts:
        _seeds, by_setting = contrast.values(scores)  # [setting, seed]
        by_seed = by_setting.mean(axis=0)
        if len(by_seed) > 1:
            sds.append(float(by_seed.std(ddof=1)))
    if not sds:
        return None
    return statistics.median(sds) or None
